"""How many training steps there were: of several optimizers, the one that steps least."""

import weakref
from typing import Any, NamedTuple

STALE_AFTER = 32  # steps of another within one training step: more than any usual ratio of one loop's optimizers
FIRST_ROUND = 5  # steps of the one for one of the other, up to which the second round tells of the first: none is stale


class _Count:
    __slots__ = ("lead", "lead_at", "ref", "steps")

    def __init__(self, ref: weakref.ref[Any], steps: int) -> None:
        self.ref = ref
        self.steps = steps
        self.lead = self.lead_at = 0  # steps that it has made within the training step of that number


class _Second(NamedTuple):
    """The second optimizer of a loop has made its first step, after the first one's first few."""

    key: int
    first: _Count
    made: int  # steps of the first one until then


class StepCounter:
    """Counts each optimizer and keeps the least; constant work for each call, whatever their number.

    One that appears later begins at the step that has been reached; one that the others no longer wait for, or that is
    gone, no longer counts. Several steps of a critic before the generator's first are one training step, of which the
    next round tells: the count then waits until that is made good.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._counts: dict[int, _Count] = {}
        self._least = 0  # how many of them stand at `steps`, or wait before it
        self._second: _Second | None = None
        self._gone = False

    @property
    def alone(self) -> bool:
        """Whether there is one optimizer."""
        return len(self._counts) == 1

    def stepped(self, optimizer: Any, more: int = 0) -> bool:
        """Count a step of this optimizer; whether that completes a training step.

        Args:
            more: Steps that the only one there is has made meanwhile.
        """
        if more:
            self._add_steps(more)
        if self._gone:
            self._drop_gone()
        count = self._counts.get(id(optimizer))
        if count is None or count.ref() is not optimizer:
            self._add(optimizer)
            return self._advance()
        count.steps += 1
        if self._second is not None and self._second.key == id(optimizer):
            self._make_good(count, self._second)
        if len(self._counts) == 1:  # as in nearly all jobs
            self.steps, self._least = count.steps, 1
            return True
        if count.steps == self.steps + 1:
            self._least -= 1
        elif count.steps > self.steps and self._leads(count) > STALE_AFTER:
            self._drop_stale()
        return self._advance()

    def _leads(self, count: _Count) -> int:
        """How many steps it has made while the training has made none."""
        if count.lead_at != self.steps:
            count.lead, count.lead_at = 0, self.steps
        count.lead += 1
        return count.lead

    def _add_steps(self, more: int) -> None:
        self.steps += more
        for count in self._counts.values():
            count.steps += more

    def _add(self, optimizer: Any) -> None:
        # With others there, one of them has most likely just been counted for the step that this one takes part in.
        first = self.steps if self._counts else self.steps + 1
        if len(self._counts) == 1 and 1 < self.steps < 2 * FIRST_ROUND:
            (other,) = self._counts.values()
            self._second = _Second(id(optimizer), other, other.steps)
        self._counts[id(optimizer)] = _Count(weakref.ref(optimizer, self._note_gone), first)
        self._least += first == self.steps

    def _make_good(self, count: _Count, second: _Second) -> None:
        """It steps again: what the first optimizer did since then, it did in the first round as well."""
        self._second = None
        each = second.first.steps - second.made
        if len(self._counts) == 2 and 1 < each <= min(second.made, FIRST_ROUND) and second.made < 2 * each:
            count.steps -= each - 1

    def _note_gone(self, _: Any) -> None:
        self._gone = True  # called at any moment, in any thread: only the next step acts on it

    def _drop_gone(self) -> None:
        self._gone = False
        self._keep([key for key, count in self._counts.items() if count.ref() is not None])

    def _drop_stale(self) -> None:
        self._keep([key for key, count in self._counts.items() if count.steps > self.steps])

    def _keep(self, keys: list[int]) -> None:
        self._counts = {key: self._counts[key] for key in keys}
        self._least = sum(count.steps <= self.steps for count in self._counts.values())

    def _advance(self) -> bool:
        if self._least or not self._counts:
            return False
        before = self.steps
        self.steps = min(count.steps for count in self._counts.values())
        self._least = sum(count.steps == self.steps for count in self._counts.values())
        return self.steps > before
