"""Lines of text as columns: logs, a JSON object a line, and CSV."""

import csv
import json
import math
import re
from collections.abc import Callable, Iterable

from diagd.daemon.artifacts.columns import NO_STEP, Piece
from diagd.probes.box.metric_text import MAX_LINE, STEP_NAMES, Form, Reader, decimals_of, from_mapping, step_of

MOST_NAMES = 2000  # of one piece: more are no metrics
EVERY = 4  # lines, of which one is looked at for how many decimals are printed
_RANKED = re.compile(r"\s*\[(?:rank|default)\s?(\d{1,6})\]:?")
TOO_LONG, NO_JSON, OTHER_COLUMNS, MANY_NAMES = (
    f"longer than {MAX_LINE} characters", "no JSON object", "other columns than the header's", "too many names",
)  # fmt: skip


Place = tuple[int, Callable[[float], None], Callable[[int], None], Callable[[int], None]]


class _Columns:
    """The columns of each form of line and rank, so that a line costs its numbers alone."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self._known: dict[tuple[int, int], list[Place]] = {}
        self._forms: list[Form] = []  # kept, as they are told apart by where they lie

    def of(self, form: Form, rank: int) -> list[Place]:
        """The place of each number, and what takes its value, its line and its step."""
        found = self._known.get((id(form), rank))
        if found is None:
            self._forms.append(form)
            wanted = [(place, name) for place, name, _ in form.names if self.has_room(rank, name)]
            columns = [(place, self._piece.column(rank, name)) for place, name in wanted]
            found = [(place, c.values.append, c.lines.append, c.steps.append) for place, c in columns]
            self._known[id(form), rank] = found
        return found

    def has_room(self, rank: int, name: str) -> bool:
        """Whether the metric is known, or may be; another is counted."""
        if len(self._piece.columns) < MOST_NAMES or (rank, name) in self._piece.columns:
            return True
        self._piece.skip(MANY_NAMES)
        return False


def read_log(lines: Iterable[str], rank: int, piece: Piece) -> None:
    """Lines as people and programs print them; of `[rank3]:` in front, the rank."""
    reader, columns = Reader(), _Columns(piece)
    for number, line in enumerate(lines, 1):
        piece.lines = number
        found = reader.form_of(line)
        if found is None:
            if len(line) > MAX_LINE:
                piece.skip(TOO_LONG)
            continue
        form, pieces = found
        if form.nested and (said := reader.read(line)) is not None:
            piece.put(rank, said.step, ((v.name, v.value) for v in said.values if columns.has_room(rank, v.name)))
        elif form.names:
            whose = rank
            if "[" in line[:4] and (ranked := _RANKED.match(line)) is not None:
                whose = int(ranked[1])
            step = step_of(pieces[form.step]) if form.step >= 0 else None
            for place, value, at_line, at_step in columns.of(form, whose):
                value(float(pieces[place]))
                at_line(number)
                at_step(NO_STEP if step is None else step)
            if number % EVERY == 1:
                _note_decimals(form, pieces, whose, piece)


def _note_decimals(form: Form, pieces: list[str], rank: int, piece: Piece) -> None:
    """To how many decimals the line's metrics are printed."""
    for place, name, rounded in form.names:
        column = piece.columns.get((rank, name))
        decimals = decimals_of(pieces[place]) if rounded else None
        if column is not None and decimals is not None:
            column.decimals = max(column.decimals, decimals)


def read_json(lines: Iterable[str], rank: int, piece: Piece) -> None:
    """A JSON object a line; `rank` in it, where it is there, names the rank."""
    columns = _Columns(piece)
    for number, line in enumerate(lines, 1):
        piece.lines = number
        if not line or line.isspace():
            continue
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            piece.skip(NO_JSON)
            continue
        if not isinstance(said, dict):
            piece.skip(NO_JSON)
            continue
        whose = said.pop("rank", rank)
        whose = whose if isinstance(whose, int) and 0 <= whose < 1 << 20 else rank
        if all(type(value) is float for value in said.values() if type(value) is not int):
            _flat(said, whose, piece, columns)
        elif (found := from_mapping(said)) is not None:
            piece.put(whose, found.step, ((v.name, v.value) for v in found.values if columns.has_room(whose, v.name)))


def _flat(said: dict[str, float], rank: int, piece: Piece, columns: _Columns) -> None:
    """An object with nothing but numbers: what nearly all are."""
    step, known = NO_STEP, piece.columns
    for name in ("step",) if "step" in said else said.keys() & STEP_NAMES:
        step = int(said[name]) if 0 <= said[name] < 1e15 else NO_STEP
    for name, value in said.items():
        column = known.get((rank, name))
        if column is None:
            if name.lower() in STEP_NAMES or not columns.has_room(rank, name):
                continue
            column = piece.column(rank, name)
        try:
            column.add(piece.lines, step, value)
        except OverflowError:  # an int beyond all floats
            column.add(piece.lines, step, math.inf)


def read_csv(lines: Iterable[str], rank: int, piece: Piece, header: list[str], delimiter: str) -> None:
    """Rows below a header; fields that are no numbers are passed over."""
    place = next((n for n, name in enumerate(header) if name.lower().replace(" ", "_") in STEP_NAMES), -1)
    columns = [None if n == place else piece.column(rank, name) for n, name in enumerate(header)]
    for line in lines:
        piece.lines += 1
        if not line:
            continue
        fields = next(csv.reader([line], delimiter=delimiter), []) if '"' in line else line.split(delimiter)
        if len(fields) != len(header):
            piece.skip(OTHER_COLUMNS)
            continue
        step = _step(fields[place]) if place >= 0 else -1
        for column, text in zip(columns, fields, strict=True):
            if column is not None and text:
                try:
                    column.add(piece.lines, step, float(text))
                except ValueError:
                    continue


def header_of(line: str) -> tuple[list[str], str]:
    """The names in a CSV's first line and what separates them; no names where it is no header."""
    line = line.lstrip("\ufeff").rstrip("\r\n")
    delimiter = max((",", "\t", ";"), key=line.count)
    names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    return ([] if len(names) < 2 or any(_is_number(name) for name in names) else names), delimiter


def _step(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return -1
    return int(value) if 0 <= value < 1e15 else -1


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
