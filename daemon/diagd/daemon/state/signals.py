"""What the ranks' scalars were over the steps: arrays by rank and name."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.state.scalars import SignalNews

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KEPT = 4096  # samples of a series
BEGIN_OF = 32  # so great a part is the run's beginning, which stays whole: rules compare with it
TURNS_OF = 16  # and of its older half at most so great a part may be where it ceased to be finite
KEPT_OF_PARAMETER = 512  # and where there is one for each parameter
PER_PARAMETER = ("grad_norm/", "param_norm/", "update_norm/")
_FIRST_SIZE = 64
MAX_NAMES = 50_000  # of a rank: more is a mistake, and would cost memory
MAX_OF_PARAMETERS = 200_000  # series of a job that there is one of for each parameter; replicas say the same anyway
MEMORY = 256 * 2**20  # bytes for the samples of all series: of many ranks less is kept of each
LEAST_KEPT = 256
_SAMPLE = 16  # bytes


class Series:
    """One scalar of one rank over its steps, oldest first.

    All is kept up to the bound. Beyond it the older half, but for the run's beginning, loses every second sample, again
    and again, so that what is recent is whole and what is long ago is still there, ever more thinly.
    """

    __slots__ = ("_count", "_steps", "_values", "first_step", "kept", "taken")

    def __init__(self, kept: int = KEPT) -> None:
        self.kept = kept
        self.first_step = -1  # of all that there ever were
        self.taken = 0  # so many samples have come in all
        self._count = 0
        self._steps = np.zeros(min(_FIRST_SIZE, kept), np.int64)
        self._values = np.zeros(min(_FIRST_SIZE, kept), np.float64)

    @property
    def steps(self) -> Ints:
        """The training step of each sample, from 1."""
        return self._steps[: self._count]

    @property
    def values(self) -> Floats:
        """The values, NaN and infinities as they were."""
        return self._values[: self._count]

    def __len__(self) -> int:
        return self._count

    def add(self, steps: Sequence[int] | Ints, values: Sequence[float] | Floats) -> None:
        """Take samples that are newer than those before."""
        if self.first_step < 0 and len(steps):
            self.first_step = int(steps[0])
        self.taken += len(steps)
        for begin in range(0, len(steps), self.kept // 4):
            end = begin + self.kept // 4
            self._add(np.asarray(steps[begin:end], np.int64), np.asarray(values[begin:end], np.float64))

    def hold(self, kept: int) -> None:
        """Keep no more than so many from now on."""
        self.kept = kept
        while self._count > kept:
            self._thin()
        if len(self._steps) > kept:
            self._steps, self._values = self._steps[:kept].copy(), self._values[:kept].copy()

    def _add(self, steps: Ints, values: Floats) -> None:
        while self._count + len(steps) > self.kept:
            self._thin()
        needed = self._count + len(steps)
        if needed > len(self._steps):
            size = min(max(needed, 2 * len(self._steps)), self.kept)
            self._steps, self._values = np.resize(self._steps, size), np.resize(self._values, size)
        self._steps[self._count : needed], self._values[self._count : needed] = steps, values
        self._count = needed

    def _thin(self) -> None:
        begin, half = self.kept // BEGIN_OF, self._count // 2
        kept = np.zeros(self._count, np.bool_)
        kept[:begin] = kept[begin:half:2] = kept[half:] = True
        kept[self._turns(half)] = True
        keep = np.flatnonzero(kept)
        self._count = len(keep)
        self._steps[: self._count], self._values[: self._count] = self._steps[keep], self._values[keep]

    def _turns(self, until: int) -> Ints:
        """The first samples that are not finite after some that are: since when that is so must not be lost."""
        odd = ~np.isfinite(self._values[:until])
        found = np.flatnonzero(odd[1:] & ~odd[:-1]) + 1
        return found[: until // TURNS_OF]


class SignalBook:
    """All scalars and facts of a job."""

    def __init__(self) -> None:
        self.left_out: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._strings: dict[int, list[str]] = {}  # by rank, by their number
        self._series: dict[int, dict[str, Series]] = {}
        self._facts: dict[int, dict[str, tuple[int, str]]] = {}
        self._kept = KEPT
        self._count = self._of_parameters = 0  # series

    def ranks(self, name: str) -> tuple[int, ...]:
        """The ranks that have told this scalar."""
        return tuple(sorted(rank for rank, series in self._series.items() if name in series))

    def names(self, rank: int) -> tuple[str, ...]:
        """What the rank tells, in the order in which it began to."""
        return tuple(self._series.get(rank, ()))

    def series(self, rank: int, name: str) -> Series | None:
        """One scalar of a rank; None where it has never told it."""
        return self._series.get(rank, {}).get(name)

    def fact(self, rank: int, name: str) -> tuple[int, str] | None:
        """The step and the newest text of a fact; None where there is none."""
        return self._facts.get(rank, {}).get(name)

    def facts(self, rank: int) -> dict[str, tuple[int, str]]:
        """All facts of a rank."""
        return dict(self._facts.get(rank, {}))

    def apply(self, news: Iterable[SignalNews]) -> None:
        """Take what is new."""
        for one in news:
            self.begin(one.rank, one.pid)
            self._take(one)

    def begin(self, rank: int, pid: int) -> None:
        """The rank is this process; another one under its number begins anew."""
        if self._pids.setdefault(rank, pid) != pid:
            self._forget(rank, pid)

    def put(self, rank: int, name: str, steps: Sequence[int] | Ints, values: Sequence[float] | Floats) -> None:
        """Add to one series."""
        mine = self._series.setdefault(rank, {})
        series = mine.get(name)
        if series is None:
            series = self._new(mine, name)
        elif series.kept > self._kept:
            series.hold(self._kept)
        if series is not None:
            series.add(steps, values)

    def _new(self, mine: dict[str, Series], name: str) -> Series | None:
        """Another series, where there is room for it."""
        of_parameter = name.startswith(PER_PARAMETER)
        if len(mine) >= MAX_NAMES or (of_parameter and self._of_parameters >= MAX_OF_PARAMETERS):
            return None
        self._count += 1
        self._of_parameters += of_parameter
        while self._kept > LEAST_KEPT and self._count * self._kept * _SAMPLE > MEMORY:
            self._kept //= 2
        series = mine[name] = Series(min(KEPT_OF_PARAMETER if of_parameter else KEPT, self._kept))
        return series

    def put_fact(self, rank: int, name: str, step: int, text: str) -> None:
        """Replace a fact."""
        self._facts.setdefault(rank, {})[name] = step, text

    def _forget(self, rank: int, pid: int) -> None:
        """Another process under this number: its training begins anew."""
        self._pids[rank] = pid
        gone = self._series.get(rank, {})
        self._count -= len(gone)
        self._of_parameters -= sum(name.startswith(PER_PARAMETER) for name in gone)
        for table in (self._strings, self._series, self._facts):
            table.pop(rank, None)

    def _take(self, news: SignalNews) -> None:
        strings = self._strings.setdefault(news.rank, [])
        if news.first_string <= len(strings):
            strings[news.first_string :] = news.strings
        self.left_out[news.rank] = news.left_out
        names, steps = np.asarray(news.names, np.int64), np.asarray(news.steps, np.int64)
        values = np.asarray(news.values, np.float64)
        order = np.argsort(names, kind="stable")
        bounds = np.flatnonzero(np.diff(names[order])) + 1
        for places in np.split(order, bounds) if len(order) else ():
            number = int(names[places[0]])
            if number < len(strings):
                self.put(news.rank, strings[number], steps[places], values[places])
        for name, step, text in news.facts:
            if max(name, text) < len(strings):
                self.put_fact(news.rank, strings[name], step, strings[text])
