"""Lines of one shape: read by a pattern of their own, and kept as rows until the piece of the file ends.

To split a line at its numbers and to see what each is costs many times what the numbers do, and a log has few shapes of
lines; and whole columns become numbers for a fraction of what one number after the other costs.
"""

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from diagd.daemon.artifacts import in_epochs
from diagd.daemon.artifacts.columns import NO_STEP, Piece, as_count
from diagd.daemon.artifacts.prefixes import Told, may_tell, piece_of
from diagd.probes.box.metric_text import STEP_NAMES, Form, decimals_of, step_of

EVERY = 4  # lines, of which one is looked at for how many decimals are printed
OFTEN = 4  # lines of a form, from which on they have a pattern
FRONT = 4  # patterns that a line is tried against, the last ones that held first
MOST = 64  # patterns of one piece
MOST_STEP, LONG_STEP = 1e15, 16  # and digits
NUMBERS = frozenset({int, float})
_EXPONENT = r"(?:[eE][-+]?+\d++)?+"
# A number of `metric_text`, of which nothing is given back: so a line is parted here as it is there.
_NUMBER = rf"(?>[-+]?+(?:\d++\.?+\d*+{_EXPONENT}|\.\d++{_EXPONENT}|(?:[nN]a[nN]|NAN|[iI]nf(?:inity)?+|INF)(?![\w.])))"


class Shape:
    """The lines of one form and one rank."""

    def __init__(self, form: Form, pieces: list[str], rank: int, ranked: Told | None) -> None:
        self._form, self._rank = form, rank
        self._counts = (form.step,) if form.step >= 0 else in_epochs.counts(form, pieces)
        places = sorted({place for place, _, _ in form.names}.union(self._counts if form.names else ()))
        self._at = {place: number for number, place in enumerate(places)}
        texts = _with_words(pieces, ranked)
        parts = (
            re.escape(text) if place % 2 == 0 else f"({_NUMBER})" if place in self._at else _NUMBER
            for place, text in enumerate(texts)
        )  # fmt: skip
        self.match = re.compile("".join(parts)).fullmatch
        self.lines: list[int] = []
        self.rows: list[Sequence[str]] = []

    def put(self, piece: Piece) -> None:
        """Its rows as samples."""
        if not self._form.names or not self.rows:
            return
        columns = list(zip(*self.rows, strict=True))
        steps = self._steps(columns) if self._counts else _no_steps(len(self.rows))
        looked_at = [number for number, line in enumerate(self.lines) if line % EVERY == 1]
        for place, name, rounded in self._form.names:
            column, texts = piece.columns.get((self._rank, name)), columns[self._at[place]]
            if column is None:  # one too many
                continue
            column.extend(self.lines, steps, array("d", map(float, texts)))
            if rounded:
                told = (decimals_of(texts[number]) for number in looked_at)
                column.decimals = max([column.decimals, *(one for one in told if one is not None)])

    def _steps(self, columns: Sequence[Sequence[str]]) -> "array[int]":
        """Those of the rows, or their counts where no step is said."""
        told = [columns[self._at[place]] for place in self._counts]
        if self._form.step >= 0:
            return _steps(told[0])
        if len(told) > 1:
            return array("q", (as_count(in_epochs.count_of(texts)) for texts in zip(*told, strict=True)))
        return array("q", (as_count(None if count == NO_STEP else count) for count in _steps(told[0])))


class Shapes:
    """Those of one piece."""

    def __init__(self) -> None:
        self.front: list[Shape] = []
        self._made: list[Shape] = []
        # By where a form lies, and rank; it is kept, so that no other comes to lie there.
        self._seen: dict[tuple[int, int], tuple[Form, int]] = {}

    def moved_up(self, shape: Shape) -> None:
        """A line had this shape: the next one may, too."""
        self.front.remove(shape)
        self.front.insert(0, shape)

    def note(self, form: Form, pieces: list[str], line: str, rank: int, ranked: Told | None) -> None:
        """A line that no pattern has read.

        Args:
            line: Without the words that name the rank, which are `ranked`.
        """
        _, times = self._seen.get(key := (id(form), rank), (form, 0))
        self._seen[key] = form, times + 1
        if times + 1 != OFTEN or len(self._made) >= MOST or form.nested:
            return
        if "".join(pieces) != line or may_tell(pieces):  # with colours or bars, the pieces are not the line
            return
        shape = Shape(form, pieces, rank, ranked)
        self._made.append(shape)
        self.front = [shape, *self.front[: FRONT - 1]]

    def put(self, piece: Piece) -> None:
        """All their rows as samples."""
        for shape in self._made:
            shape.put(piece)


class Objects:
    """Objects with the same names in the same order, as rows."""

    def __init__(self) -> None:
        self._tables: dict[tuple[Any, ...], tuple[list[int], list[tuple[Any, ...]]]] = {}

    def take(self, said: dict[str, Any], rank: int, line: int) -> None:
        """One more."""
        table = self._tables.get(key := (rank, *said))
        if table is None:
            table = self._tables[key] = ([], [])
        table[0].append(line)
        table[1].append(tuple(said.values()))

    def tables(self) -> Iterable[tuple[int, tuple[str, ...], list[int], list[tuple[Any, ...]]]]:
        """Rank, names, lines and rows of each."""
        for (rank, *names), (lines, rows) in self._tables.items():
            yield rank, tuple(names), lines, rows


def put_numbers(
    piece: Piece, rank: int, names: Sequence[str], lines: list[int], columns: Sequence[Sequence[float]]
) -> None:
    """Columns of numbers as samples; of those that count steps the first by name is the step."""
    counts = "step" if "step" in names else min(STEP_NAMES.intersection(names), default="")
    steps = _no_steps(len(lines))
    if counts:
        told = columns[names.index(counts)]
        steps = array("q", (int(value) if 0 <= value < MOST_STEP else NO_STEP for value in told))
    for name, values in zip(names, columns, strict=True):
        if name.lower() not in STEP_NAMES and (column := piece.columns.get((rank, name))) is not None:
            column.extend(lines, steps, _floats(values))


def _floats(values: Sequence[float]) -> "array[float]":
    try:
        return array("d", values)
    except OverflowError:  # an int beyond all floats
        return array("d", (value if abs(value) < 1e308 else math.inf if value > 0 else -math.inf for value in values))


def _steps(texts: Sequence[str]) -> "array[int]":
    if "".join(texts).isdecimal() and len(max(texts, key=len)) < LONG_STEP:  # as `step_of` wants each of them
        return array("q", map(int, texts))
    return array("q", (NO_STEP if (step := step_of(text)) is None else step for text in texts))


def _no_steps(count: int) -> "array[int]":
    return array("q", [NO_STEP]) * count


def _with_words(pieces: list[str], ranked: Told | None) -> list[str]:
    """The pieces of the whole line: those of the rest, and the words that name the rank put back."""
    if ranked is None:
        return pieces
    place, offset = piece_of(pieces, ranked.at)
    text = pieces[place]
    return [*pieces[:place], text[:offset] + ranked.words + text[offset:], *pieces[place + 1 :]]
