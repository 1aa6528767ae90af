"""The budget of what is sampled: when there is room for more, and how many steps lie between two regular samples.

What is sampled now and then asks `affords`: a token bucket, fed with a part of the time that steps take. What ranks do
at the same steps, so that it can be compared, keeps to `stride` instead: a power of two, which each rank sets by what
it costs there. Steps that the larger of two strides takes are among those of the smaller one.
"""

import time

from diagd.probes.box.layout import Live
from diagd.probes.state import STATE

PART = 0.004  # of step time; the rest of the 1 % is for what is not sampled, and for the ledger
SAVED_STEPS = 100  # what so many steps feed is kept at most: one burst is then less than half a step
LEAST_NS = 5_000_000  # kept in any case, or steps of a millisecond could never pay for anything
START_NS = 20_000_000  # most faults show in the first steps
MAX_STRIDE = 128  # of steps that are so short that even these lie close together
SMALL = 4  # what is small goes on at each step up to this stride, and beyond it that much more often than the rest
_STEP, _OVERHEAD = int(Live.STEP), int(Live.OVERHEAD_NS)
_LEFT_OUT, _STRIDE = int(Live.SAMPLES_LEFT_OUT), int(Live.SAMPLE_STRIDE)
_RARER = "to stay within the budget, samples are taken at one of"
_now = time.monotonic_ns


class Budget:
    """This process's, for all probes together; for any thread (two at once may lose one's count, no more)."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """A new box begins anew."""
        self._saved = float(START_NS)
        self._most = float(START_NS)
        self._fed_ns = 0  # when, 0 never
        self._fed_step = -2  # of none
        self._step_ns = 0.0  # of a typical step: a running median
        self.stride = 1  # steps

    def affords(self, ns: int) -> bool:
        """Whether work that takes about so long may be done now; where not, that is counted.

        Args:
            ns: What it is thought to take, as by the last time; 0 where that is not known yet.
        """
        live = STATE.live
        if live is None or not STATE.recording:
            self._fed_ns = 0  # this time feeds nothing
            return False
        if live[_STEP] != self._fed_step:
            self._feed(live[_STEP], _now())
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

    def rests(self, step: int) -> bool:
        """Whether at this step what is small, and usually done at each, is left out as well."""
        return self.stride > SMALL and step % (self.stride // SMALL) != 0

    def _feed(self, step: int, now_ns: int) -> None:
        """Steps were completed since the last time."""
        took, steps = now_ns - self._fed_ns, step - self._fed_step
        fed, self._fed_ns, self._fed_step = self._fed_ns > 0, now_ns, step
        if fed and took > 0 and steps > 0:
            each, typical = took / steps, self._step_ns or took / steps
            self._step_ns = typical + typical / 16 * (1 if each > typical else -1)
            self._most = max(PART * SAVED_STEPS * self._step_ns, LEAST_NS)
            self._saved = max(self._saved, min(self._saved + PART * took, self._most))

    def widen(self, spent_ns: float, allowed_ns: float) -> bool:
        """Set the stride by what all probes together have cost of late; False where it can grow no more."""
        if spent_ns > allowed_ns and self.stride >= MAX_STRIDE:
            return False
        if spent_ns > allowed_ns:
            self.stride = min(self.stride * (4 if spent_ns > 3 * allowed_ns else 2), MAX_STRIDE)
            if self.stride >= SMALL:
                STATE.note(f"{_RARER} {self.stride} steps", instead_of=_RARER)
        elif spent_ns < allowed_ns / 3 and self.stride > 1:
            self.stride //= 2
        if STATE.live is not None:
            STATE.live[_STRIDE] = self.stride
        return True


BUDGET = Budget()
