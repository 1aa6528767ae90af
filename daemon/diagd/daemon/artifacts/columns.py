"""Metrics of one piece of a file, as columns: the form in which they travel between processes."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

NO_STEP = -1
EPOCHS = frozenset({"epoch", "ep", "train epoch", "train_epoch", "current_epoch", "epochs"})
_COUNTS = -2  # and below: a count, which stands in where no step is said
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Key = tuple[int, str]  # rank, metric as logged


def as_count(count: int | None) -> int:
    """What a column holds of a count that may be one of steps (`[1200/2000]`), so that it is told from a step."""
    return NO_STEP if count is None else _COUNTS - count


def is_count(steps: Ints) -> NDArray[np.bool_]:
    """Which of them are counts."""
    return steps <= _COUNTS


def of_counts(steps: Ints) -> Ints:
    """The counts, as steps."""
    return np.where(is_count(steps), _COUNTS - steps, NO_STEP)


class Column:
    """One metric's samples: the line of each, its step there (NO_STEP: none), its value."""

    __slots__ = ("decimals", "lines", "steps", "values")

    def __init__(self) -> None:
        self.lines = array("q")
        self.steps = array("q")
        self.values = array("d")
        self.decimals = -1  # to how many it is printed; -1 exact

    def add(self, line: int, step: int, value: float) -> None:
        """One more.

        Raises:
            OverflowError: The value is an int beyond all floats; nothing was added.
        """
        self.values.append(value)
        self.lines.append(line)
        self.steps.append(step)

    def extend(self, lines: Iterable[int], steps: "array[int]", values: "array[float]") -> None:
        """Many more; `Piece.settle` puts them in the order of their lines."""
        self.values.extend(values)
        self.lines.extend(lines)
        self.steps.extend(steps)

    def settle(self) -> None:
        """Put what came in other than the order of lines into that."""
        lines = np.frombuffer(self.lines, np.int64)
        if (np.diff(lines) >= 0).all():
            return
        order = np.argsort(lines, kind="stable")
        steps, values = np.frombuffer(self.steps, np.int64)[order], np.frombuffer(self.values, np.float64)[order]
        self.lines, self.steps = array("q", lines[order].tobytes()), array("q", steps.tobytes())
        self.values = array("d", values.tobytes())

    def arrays(self) -> tuple[Ints, Ints, Floats]:
        """Lines, steps and values."""
        return (
            np.frombuffer(self.lines, np.int64), np.frombuffer(self.steps, np.int64),
            np.frombuffer(self.values, np.float64),
        )  # fmt: skip


@dataclass(slots=True)
class Piece:
    """What a piece of a file holds."""

    columns: dict[Key, Column] = field(default_factory=dict)
    lines: int = 0
    read: int = 0  # bytes
    skipped: dict[str, int] = field(default_factory=dict)  # why -> how many lines
    stopped: str = ""  # why nothing behind it can be read; empty: it can
    nulls: dict[Key, int] = field(default_factory=dict)  # records at its end in which a metric has no value
    per_epoch: int = 0  # what the steps of an epoch go up to, where the lines say that and their epoch

    def column(self, rank: int, name: str) -> Column:
        """A metric's column, new where there is none."""
        found = self.columns.get((rank, name))
        if found is None:
            found = self.columns[rank, name] = Column()
        return found

    def settle(self) -> None:
        """All is there: put it into the order of lines."""
        for column in self.columns.values():
            column.settle()

    def skip(self, why: str) -> None:
        """Count a line that could not be read."""
        self.skipped[why] = self.skipped.get(why, 0) + 1

    def put(self, rank: int, step: int | None, values: Iterable[tuple[str, float]]) -> None:
        """Take what one line, record or event says."""
        for name, value in values:
            self.column(rank, name).add(self.lines, NO_STEP if step is None else step, value)
