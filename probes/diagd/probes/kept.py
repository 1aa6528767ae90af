"""Whether gradients are cleared between two steps, and only there: seen by whether a gradient is the same tensor,
untouched since.

Of a few parameters, at the beginning of each backward pass: a gradient that is None, another tensor, or one that was
written to since the step before or the last backward pass has been cleared, or is at least in the script's own hands.
Gradients that one backward call has left, and that are gone when the same line calls it again, were for nothing; but
not where weights have changed in between (by an optimizer's step, or perturbed by them), nor where the step is not
given what the last call left (but what was made of copies of all of them).
"""

from typing import Any, NamedTuple

from diagd.probes.places import Place, places

WATCHED = 3  # parameters of an optimizer

Site = tuple[str, int]


class _Steps:
    """Of all optimizers."""

    count = 0


class _Left(NamedTuple):
    """A backward pass has left gradients."""

    site: Site
    steps: int  # that optimizers had made
    weights: list[int]  # versions
    gradients: list[int]  # ids


class Kept:
    """Of one optimizer."""

    def __init__(self) -> None:
        self._places: list[Place] = []  # that are watched, as long as there are gradients
        self._watched: list[tuple[Place, int, int]] = []  # parameter, its gradient's id and version
        self._cleared = True
        self._passes = 0
        self._told_passes = 0
        self._gathered = 0  # passes whose gradients are there, since the last step
        self._step = 0  # what the optimizer left in it is watched
        self._left: _Left | None = None  # by the last pass
        self._site: Site = ("", 0)
        self.discarded = 0  # passes of this step whose gradients nobody has used
        self.unsure = False  # the next step has to be watched as well

    def after_step(self, optimizer: Any, step: int) -> None:
        """The optimizer has stepped: watch what it leaves."""
        _Steps.count += 1
        self._left, self.discarded, self._gathered = None, 0, 0
        self._step, self.unsure = step, self.unsure and self._step != step - 1
        found = _all_now(self._places)
        if not found or len(found) < len(self._places):
            given = [place for place, p in places(optimizer) if p.grad is not None]
            self._places = given[:: max(len(given) // WATCHED, 1)][:WATCHED]
            found = _all_now(self._places)
        self._watched = found
        self._cleared, self._passes = not found, 0

    def before_backward(self, step: int, site: Site = ("", 0)) -> None:
        """Gradients will be added to what is there now.

        Args:
            step: Under way. Where what the one before it left was not watched, only gradients that are None are
                known to have been cleared.
            site: File and line that call it.
        """
        self._passes += 1
        self._site = site
        left = self._left
        unused = left is not None and left[:3] == (site, _Steps.count, _weights(self._places))
        if not _all_now(self._places):
            self.discarded += self._gathered if unused else 0
            self._gathered = 0
        self._gathered += 1
        if self._passes == 1 and self._step and step > self._step + 1:
            self._cleared = len(_all_now(self._places)) < len(self._places)
            self.unsure = not self._cleared and bool(self._places)
            self._watched = []
        elif not self._cleared:
            # All of them: a script may clear some by itself.
            self._cleared = not all(_now(place) == (number, version) for place, number, version in self._watched)

    def after_backward(self) -> None:
        """What the pass has added is no clearing."""
        now = [number for _, number, _ in _all_now(self._places)]
        whole = bool(now) and len(now) == len(self._places)
        self._left = _Left(self._site, _Steps.count, _weights(self._places), now) if whole else None
        if not self._cleared:
            self._watched = _all_now([place for place, _, _ in self._watched])

    def discards(self) -> float | None:
        """The part of the step's backward passes whose gradients were cleared unused; None with one pass alone."""
        if self._passes < 2:
            return None
        given = [number for _, number, _ in _all_now(self._places)]
        return self.discarded / self._passes if self._left is not None and given == self._left.gradients else 0.0

    def passes(self) -> int:
        """The step's backward passes, where that is another number than at the last step that was asked of; else 0."""
        if self._passes in (0, self._told_passes):
            return 0
        self._told_passes = self._passes
        return self._passes

    def before_step(self) -> float | None:
        """1 where the gradients of the step before are still in those of this one, 0 where not; None where unknown."""
        if not self._passes or (self.unsure and not self._watched):
            return None
        # What was put in their place holds nothing of them, as a part of gradients that were gathered elsewhere.
        kept = any((now := _now(place)) is not None and now[0] == number for place, number, _ in self._watched)
        return 1.0 if kept and not self._cleared else 0.0


def _all_now(some: list[Place]) -> list[tuple[Place, int, int]]:
    return [(place, *now) for place in some if (now := _now(place)) is not None]


def _weights(some: list[Place]) -> list[int]:
    return [held._version for place in some if (held := place.tensor()) is not None]


def _now(place: Place) -> tuple[int, int] | None:
    held = place.tensor()
    gradient = held.grad if held is not None else None
    return (id(gradient), gradient._version) if gradient is not None else None
