"""What the memory rules share: how much room there is, when it is full, and how sizes and forecasts are said."""

from dataclasses import dataclass

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.growth import MIB, Floats, Growth, Ints, growth
from diagd.daemon.state.columns import NEVER
from diagd.daemon.state.job import JobState

GIB = 1024 * MIB
LEAST_BYTES = 32 * MIB
LEAST_PART = 0.1  # of what was held before
ENOUGH_BYTES = GIB  # whatever was held before
ROUND = 2  # digits of a forecast that are said
# Half the width of its interval at least, of its middle: no pace is known better, and less so the farther ahead.
SURE, LEAST_SURE = 0.1, 0.5
CREDIBLE = 4.0  # a forecast reaches as far ahead as so many times what was seen
NEAR_S = 3600.0
NEAR_STEPS = 500
FAR_S = 24 * 3600.0
FAR_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a room is full; steps from now on."""

    steps: int
    first: int
    last: int
    step_s: float  # 0 not known
    at_step: int
    credible: bool

    @property
    def seconds(self) -> float:
        """From now on; infinite where it is not known what a step takes."""
        return self.steps * self.step_s if self.step_s else float("inf")

    @property
    def near(self) -> bool:
        """Within the hour or 500 steps, and not farther ahead than four times what was seen."""
        return self.credible and (self.seconds <= NEAR_S or self.steps <= NEAR_STEPS)

    @property
    def within_reach(self) -> bool:
        """Within a day or 100,000 steps at this pace, however short it was seen."""
        return self.seconds <= FAR_S or self.steps <= FAR_STEPS

    @property
    def text(self) -> str:
        """ "in about 8200 steps (7100 to 9900, about 6 min), near step 8400": rounded, as it is known."""
        taken = f", about {_coarse_text(self.seconds)}" if self.step_s else ""
        steps, first, last = (round(number, _digits(number)) for number in (self.steps, self.first, self.last))
        return (
            f"in about {steps} steps ({first} to {last}{taken}), near step {round(self.at_step, _digits(self.steps))}"
        )


def forecast(state: JobState, rank: int, found: Growth, room: float, others: float = 0.0) -> Forecast:
    """When `room` bytes are full, where others take so many bytes a step of it too."""
    likely, first, last = found.steps_until(max(room, 0.0), others)
    wide = min(SURE * max(likely / max(found.steps, 1), 1.0) ** 0.5, LEAST_SURE) * likely
    first, last = min(first, int(likely - wide)), max(last, int(likely + wide))
    interval = float(state.columns.step_interval_s[rank])
    step_s = interval if interval != NEVER and interval > 0 else 0.0
    return Forecast(likely, first, last, step_s, found.until + likely, likely <= CREDIBLE * found.steps)


def _digits(number: int) -> int:
    """Of round(), with which so many digits are left."""
    return min(ROUND - len(str(abs(number))), 0)


def _coarse_text(seconds: float) -> str:
    """Without the seconds of minutes, or the minutes of hours."""
    return " ".join(words.seconds_text(seconds).split()[:2])


@dataclass(frozen=True, slots=True)
class Room:
    """What is left for a rank: of the memory that it shares with others, or of a limit of its own process."""

    left: float
    own_limit: float  # 0: shared

    @property
    def text(self) -> str:
        """ "1.2 GiB are left", "90 MiB are left of the 850 MiB that a limit of the process allows"."""
        of = (
            f" of the {size_text(self.own_limit)} that a limit of the process (ulimit) allows" if self.own_limit else ""
        )
        return f"{size_text(self.left)} are left{of}"


def nearest(state: JobState, rank: int, found: Growth, others: float, *, own: bool) -> tuple[Forecast, Room] | None:
    """What is full first at this pace, and when; None where it is not known what is left.

    Args:
        others: What others take of the shared memory, in bytes a step.
        own: Whether what grows counts against a limit of the rank's own process.
    """
    shared, alone = newest(state, rank, "memory/available"), newest(state, rank, "memory/own_left") if own else None
    ahead = []
    if shared is not None:
        ahead.append((forecast(state, rank, found, shared, others), Room(shared, 0.0)))
    if alone is not None:
        limit = newest(state, rank, "memory/own_limit") or 0.0
        ahead.append((forecast(state, rank, found, alone), Room(alone, limit)))
    return min(ahead, key=lambda one: one[0].steps, default=None)


def growth_of(state: JobState, rank: int, name: str) -> Growth | None:
    """How a rank's series has grown; None where it has not, or by too little to speak of."""
    series = state.signals.series(rank, name)
    return worth(growth(series.steps, series.values, LEAST_BYTES)) if series is not None else None


def worth(found: Growth | None) -> Growth | None:
    """The growth where it is a tenth of what was held before (at most a GiB), and 32 MiB."""
    if found is None or found.grown < max(LEAST_BYTES, min(LEAST_PART * found.before, ENOUGH_BYTES)):
        return None
    return found


def newest(state: JobState, rank: int, name: str) -> float | None:
    """The newest value of a series."""
    series = state.signals.series(rank, name)
    return float(series.values[-1]) if series is not None and len(series) else None


def since_change(state: JobState, rank: int, name: str, marks: tuple[str, ...]) -> tuple[Ints, Floats]:
    """The samples of a series since the last change of any of others, which are told with it."""
    series = state.signals.series(rank, name)
    if series is None:
        return np.zeros(0, np.int64), np.zeros(0)
    begin = 0
    for mark in marks:
        other = state.signals.series(rank, mark)
        if other is not None and len(other) == len(series):
            changed = np.flatnonzero(np.diff(other.values))
            begin = max(begin, int(changed[-1]) + 1 if len(changed) else 0)
    return series.steps[begin:], series.values[begin:]


def node_of(state: JobState, rank: int) -> str:
    """Whose memory the rank shares."""
    return state.detail(rank).node


def size_text(size: float) -> str:
    """ "340 MiB", "2.1 GiB"."""
    if abs(size) >= 10 * GIB:
        return f"{size / GIB:.0f} GiB"
    if abs(size) >= GIB:
        return f"{size / GIB:.1f} GiB"
    return f"{size / MIB:.0f} MiB" if abs(size) >= 10 * MIB else f"{size / MIB:.1f} MiB"
