"""The budget of what is sampled when there is room for it: a token bucket, fed with a part of the time that steps take.

What every rank does at the same steps does not ask here, as ranks would differ in it: the answer depends on this rank's
own time.
"""

from diagd.probes.box.layout import Live
from diagd.probes.state import STATE

PART = 0.004  # of step time; the rest of the 1 % is for what is not sampled, and for the ledger
SAVED_STEPS = 100  # what so many steps feed is kept at most: one burst is then less than half a step
LEAST_NS = 5_000_000  # kept in any case, or steps of a millisecond could never pay for anything
START_NS = 20_000_000  # most faults show in the first steps
_OVERHEAD, _LEFT_OUT = int(Live.OVERHEAD_NS), int(Live.SAMPLES_LEFT_OUT)


class Budget:
    """This process's, for all probes together; for any thread (two at once may lose one's count, no more)."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """A new box begins anew."""
        self._saved = float(START_NS)
        self._most = float(START_NS)
        self._fed_ns = 0  # when, 0 never
        self._step_ns = 0.0  # of a typical step: a running median

    def affords(self, ns: int) -> bool:
        """Whether work that takes about so long may be done now; where not, that is counted.

        Args:
            ns: What it is thought to take, as by the last time; 0 where that is not known yet.
        """
        live = STATE.live
        if live is None or not STATE.recording:
            return False
        if ns <= self._saved and self._saved > 0:
            return True
        live[_LEFT_OUT] += 1
        if ns > self._most:
            STATE.note("left out to stay within the budget: samples that take too long for steps as short as these")
        return False

    def spent(self, ns: int) -> None:
        """It was done, and took so long; that counts into what the probes cost.

        A first time can take a hundred times the usual one: of a debt, no more is kept than can be saved again.
        """
        self._saved = max(self._saved - ns, -self._most)
        live = STATE.live
        if live is not None:
            live[_OVERHEAD] += ns

    def feed(self, now_ns: int) -> None:
        """A training step is over."""
        took, self._fed_ns = now_ns - self._fed_ns if self._fed_ns else 0, now_ns
        if took <= 0 or not STATE.recording:
            return
        typical = self._step_ns or took
        self._step_ns = typical + typical / 16 * (1 if took > typical else -1)
        self._most = max(PART * SAVED_STEPS * self._step_ns, LEAST_NS)
        self._saved = max(self._saved, min(self._saved + PART * took, self._most))


BUDGET = Budget()
