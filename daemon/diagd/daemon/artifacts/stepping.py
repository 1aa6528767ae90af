"""Puts the samples of a stream on one counter of training steps, and tells where one run ends and the next begins.

The metric with the most samples leads: where its step goes back, that is the next epoch of a counter that begins anew
with each, a restart from a checkpoint that repeats steps, or another run in the same file. All other samples of the
stream take their place from the line at which they stand. Where no line says its step, but counts towards something
(`[1200/2000]`, a progress bar, `batch 20`), that is the step; without either, samples are counted, and told by lines.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from diagd.daemon.artifacts.columns import EPOCHS, NO_STEP, Column, Floats, Ints, Key, Piece, is_count, of_counts

_LOST = 0.25  # of all steps that go back: then they are no counter
_AROUND = 5  # samples that show a level


@dataclass(slots=True)
class Stretch:
    """Samples of one run, by metric: steps that never fall, and values."""

    run: int  # the stream's first, second, … from 0
    samples: dict[Key, tuple[Ints, Floats]]
    decimals: Mapping[Key, int]
    share: float = 1.0  # of all bytes of its stream, that the samples have come from
    # Of metrics whose steps are not known: the line of each sample; None where its place is that of its epoch.
    counted: Mapping[Key, Ints | None] = field(default_factory=dict)
    # Of metrics of which a restart repeats steps: all samples in the order of lines, these too.
    in_order: Mapping[Key, tuple[Ints, Floats]] = field(default_factory=dict)

    @property
    def last_step(self) -> int:
        """The last of all; -1 without samples."""
        return max((int(steps[-1]) for steps, _ in self.samples.values() if len(steps)), default=-1)


@dataclass(slots=True)
class _Counter:
    """Where the leading metric stands."""

    base: int = 0
    gap: int = 1  # between its last two steps
    first: int = NO_STEP  # of the present cycle
    last: int = NO_STEP  # as it is in the file
    top: int = -1  # on the common counter
    count: int = 0
    epoch: float | None = None  # at the beginning of the cycle
    level: float = float("nan")  # that the run began at
    recent: list[float] = field(default_factory=list)


class Stepping:
    """One stream's."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._run = 0
        self._counter = _Counter()
        self._lead: Key | None = None
        self._epoch: float | None = None
        self._before = 0, 0  # run and place before the piece
        self._ordinals: dict[Key, int] = {}
        self._says_steps = False
        self._per_epoch = 0
        self._lines_before = 0  # in earlier pieces of the file

    def begin_file(self) -> None:
        """What comes is of the stream's next file: its lines are counted anew."""
        self._lines_before = 0

    def stretches(self, piece: Piece) -> Iterator[Stretch]:
        """The piece's samples, in as many stretches as it holds runs."""
        self._settle_counts(piece)
        decimals = {key: column.decimals for key, column in piece.columns.items() if column.decimals >= 0}
        lead = self._choose(piece.columns)
        if lead is None:
            yield self._by_count(piece, decimals)
            self._lines_before += piece.lines
            return
        lines, places, runs = self._placed(*piece.columns[lead].arrays(), self._epochs(piece.columns))
        for run in dict.fromkeys([*runs.tolist(), self._run]) if len(runs) else [self._run]:
            samples = {
                key: found for key, column in piece.columns.items()
                if len((found := self._own(column, lines, places, runs, run))[0])
            }  # fmt: skip
            if samples:
                yield Stretch(run, samples, decimals, in_order=self._in_order(piece, lines, places, runs, run))
        self._lines_before += piece.lines

    def _settle_counts(self, piece: Piece) -> None:
        """What the lines count is their step where none says it; a number that is always the same counts nothing."""
        columns = [(column, column.arrays()[1]) for column in piece.columns.values()]
        self._says_steps = self._says_steps or any(bool((steps >= 0).any()) for _, steps in columns)
        self._per_epoch = piece.per_epoch or self._per_epoch
        for column, steps in columns:
            if (counts := is_count(steps)).any():
                told = of_counts(steps)
                rises = np.ptp(told[counts]) > 0 or len(steps) == 1
                kept = told if rises and not self._says_steps else NO_STEP
                column.steps = array("q", np.where(counts, kept, steps).astype(np.int64).tobytes())

    def _choose(self, columns: Mapping[Key, Column]) -> Key | None:
        stepped = {key: len(c.values) for key, c in columns.items() if any(step >= 0 for step in c.steps[:50])}
        if not stepped:
            return None
        most = max(stepped, key=lambda key: (stepped[key], key[1].lower() not in EPOCHS))
        if self._lead in stepped and stepped[self._lead] >= 0.5 * stepped[most]:
            return self._lead
        self._lead = most
        return most

    def _epochs(self, columns: Mapping[Key, Column]) -> tuple[Ints, Floats]:
        key = next((key for key in columns if key[1].lower() in EPOCHS), None)
        if key is None:
            return np.zeros(0, np.int64), np.zeros(0)
        lines, _, values = columns[key].arrays()
        return lines, values

    def _placed(self, lines: Ints, steps: Ints, values: Floats, epochs: tuple[Ints, Floats]) -> tuple[Ints, Ints, Ints]:
        """Lines of the leading metric, their places on the common counter (see `_repeated`), and their runs."""
        known = steps >= 0
        lines, steps, values = lines[known], steps[known], values[known]
        counter = self._counter
        self._before = self._run, max(counter.top, 0)
        previous = np.concatenate([[counter.last if counter.last >= 0 else steps[0]], steps[:-1]])
        back = np.flatnonzero(steps < previous)
        if not len(back) and len(epochs[1]) and epochs[1][-1] > epochs[1][0]:
            self._per_epoch = 0  # what is told is where the run ends
        if len(back) > _LOST * len(steps) and len(steps) > 4:
            self._note("its steps go back and forth: samples are counted instead")
            steps = counter.top + 1 + np.arange(len(steps))
            back = back[:0]
        places, runs = np.empty(len(steps), np.int64), np.empty(len(steps), np.int64)
        for begin, end in zip([0, *back.tolist()], [*back.tolist(), len(steps)], strict=True):
            if end > begin:
                if begin in back:
                    self._goes_back(int(steps[begin]), values[begin : begin + _AROUND], _at(epochs, lines[begin]))
                self._cycle(steps[begin:end], values[begin:end], places[begin:end], _at(epochs, lines[begin]))
                runs[begin:end] = self._run
        return lines, places, runs

    def _cycle(self, steps: Ints, values: Floats, places: Ints, epoch: float | None) -> None:
        """A stretch in which the step never falls."""
        counter = self._counter
        if counter.first == NO_STEP:
            counter.first, counter.epoch = int(steps[0]), epoch if epoch is not None else self._epoch
            if counter.top < 0:
                counter.base = self._before_epoch(counter.epoch)
        if counter.count < _AROUND:
            counter.level = float(np.median(values[:_AROUND]))
        on_counter = steps + counter.base
        places[:] = np.where(on_counter < counter.top, _repeated(on_counter), on_counter)
        rises = np.diff(steps)
        if rises.any():
            counter.gap = int(rises[rises > 0][-1])
        counter.last, counter.count = int(steps[-1]), counter.count + len(steps)
        counter.top = max(counter.top, counter.last + counter.base)
        counter.recent = [*counter.recent, *values[-_AROUND:].tolist()][-_AROUND:]
        self._epoch = epoch if epoch is not None else self._epoch

    def _goes_back(self, step: int, values: Floats, epoch: float | None) -> None:
        counter = self._counter
        new_cycle = step <= counter.first + 2 * counter.gap
        if new_cycle and self._continues(values, epoch):
            counter.base += self._cycle_steps(step, epoch)
            counter.first = NO_STEP
        elif new_cycle:
            self._run += 1
            self._counter = _Counter()
        else:
            self._note(f"goes back from step {counter.last} to {step}: a restart; what it repeats is left out")

    def _before_epoch(self, epoch: float | None) -> int:
        """The steps before the epoch that the log begins with."""
        if not self._per_epoch or epoch is None or epoch < 2 or epoch % 1:  # 0 and 1 may be the first
            return 0
        self._note(f"begins in epoch {epoch:.0f}: steps are counted as if epochs began with 1")
        return int(epoch - 1) * self._per_epoch

    def _cycle_steps(self, step: int, epoch: float | None) -> int:
        """How many steps lie between the beginnings of the last cycle and of the one that begins with this step."""
        counter = self._counter
        if self._per_epoch >= counter.last and epoch is not None and counter.epoch is not None:
            epochs = epoch - counter.epoch
            if epochs >= 1 and not epochs % 1:
                return int(epochs) * self._per_epoch
        return counter.last + counter.gap - step

    def _continues(self, values: Floats, epoch: float | None) -> bool:
        """Whether the run goes on where its counter begins anew: by the epoch, else by the metric's level."""
        counter = self._counter
        if epoch is not None and counter.epoch is not None:
            return epoch > counter.epoch
        now, before = float(np.median(values)), float(np.median(counter.recent))
        return abs(now - before) < abs(now - counter.level)

    def _own(self, column: Column, lines: Ints, places: Ints, runs: Ints, run: int) -> tuple[Ints, Floats]:
        """A metric's samples in one run, each at the leading metric's place by its line."""
        steps, whose, values = self._at_lines(column, lines, places, runs)
        kept = (steps >= 0) & (whose == run)
        steps, values = steps[kept], values[kept]
        if len(steps) > 1:  # a progress bar shows the same again and again
            fresh = np.concatenate([[True], (np.diff(steps) != 0) | ~_same(values)])
            steps, values = steps[fresh], values[fresh]
        return steps, values

    def _at_lines(self, column: Column, lines: Ints, places: Ints, runs: Ints) -> tuple[Ints, Ints, Floats]:
        """Places, runs and values of all samples of a metric."""
        mine, _, values = column.arrays()
        at = np.searchsorted(lines, mine, side="right") - 1
        steps, whose = places[np.maximum(at, 0)], runs[np.maximum(at, 0)]
        if len(at) and at[0] < 0:
            steps, whose = np.where(at < 0, self._before[1], steps), np.where(at < 0, self._before[0], whose)
        return steps, whose, values

    def _in_order(
        self, piece: Piece, lines: Ints, places: Ints, runs: Ints, run: int
    ) -> dict[Key, tuple[Ints, Floats]]:  # fmt: skip
        """The samples of a run with those that a restart repeats; empty where it repeats none."""
        found = {}
        for key, column in piece.columns.items() if (places < 0).any() else ():
            steps, whose, values = self._at_lines(column, lines, places, runs)
            mine = whose == run
            found[key] = np.where(steps < 0, _repeated(steps), steps)[mine], values[mine]
        return found

    def _by_count(self, piece: Piece, decimals: Mapping[Key, int]) -> Stretch:
        """Without steps the samples are counted; by epochs, where each line says its own."""
        samples, counted, epochs = {}, dict[Key, Ints | None](), self._epochs(piece.columns)
        for key, column in piece.columns.items():
            lines, _, values = column.arrays()
            first = self._ordinals.get(key, 1)
            steps = _of_epochs(lines, epochs, first if key in self._ordinals else 0)
            counted[key] = None if steps is not None else lines + self._lines_before
            samples[key] = (steps if steps is not None else first + np.arange(len(values))), values
            self._ordinals[key] = int(samples[key][0][-1]) + 1 if len(values) else first
        return Stretch(self._run, samples, decimals, counted=counted)

    def _note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < 8:
            self.notes.append(text)


def _repeated(places: Ints) -> Ints:
    """Places as they are written where a restart repeats them, below 0; and back."""
    return -1 - places


def _of_epochs(lines: Ints, epochs: tuple[Ints, Floats], least: int) -> Ints | None:
    """The epochs that these lines say, as steps; None unless each says one, and they rise from `least` on."""
    said, numbers = epochs
    if not len(lines) or not np.isin(lines, said).all():
        return None
    found = numbers[np.searchsorted(said, lines)]
    whole = found.astype(np.int64)
    rising = whole[0] >= least and bool((np.diff(whole) > 0).all())
    return whole if rising and bool((whole == found).all()) else None


def _at(epochs: tuple[Ints, Floats], line: int) -> float | None:
    """The epoch at a line."""
    at = int(np.searchsorted(epochs[0], line, side="right")) - 1
    return float(epochs[1][at]) if at >= 0 else None


def _same(values: Floats) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which of the values, from the second on, are those before them; NaN is NaN."""
    pair: np.ndarray[tuple[int], np.dtype[np.bool_]] = (values[1:] == values[:-1]) | (
        np.isnan(values[1:]) & np.isnan(values[:-1])
    )
    return pair
