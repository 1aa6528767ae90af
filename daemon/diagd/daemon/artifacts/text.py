"""Lines of text as columns: logs, a JSON object a line, and CSV."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from diagd.daemon.artifacts import in_epochs, prefixes
from diagd.daemon.artifacts.columns import EPOCHS, NO_STEP, Piece, as_count
from diagd.daemon.artifacts.shapes import EVERY, NUMBERS, Objects, Shapes, put_numbers
from diagd.probes.box.metric_text import MAX_LINE, STEP_NAMES, Form, Reader, decimals_of, from_mapping, step_of

MOST_NAMES = 2000  # of one piece: more are no metrics
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
    """Lines as people and programs print them; what stands in front of them may name another rank."""
    reader, columns, shapes = Reader(), _Columns(piece), Shapes()
    number = 0
    for number, line in enumerate(lines, 1):
        for shape in shapes.front:
            if (match := shape.match(line)) is not None and len(line) <= MAX_LINE:
                shape.lines.append(number)
                shape.rows.append(match.groups())
                if shape is not shapes.front[0]:
                    shapes.moved_up(shape)
                break
        else:
            piece.lines = number
            _read_line(line, rank, piece, reader, columns, shapes)
    piece.lines = number
    shapes.put(piece)
    piece.settle()


def _read_line(line: str, rank: int, piece: Piece, reader: Reader, columns: _Columns, shapes: Shapes) -> None:
    number = piece.lines
    if len(line) > MAX_LINE:
        piece.skip(TOO_LONG)
        return
    ranked = prefixes.told(line)
    rest, whose = (ranked.without(line), ranked.rank) if ranked is not None else (line, rank)
    found = reader.form_of(rest)
    if found is None or prefixes.is_own(line):
        return
    form, pieces = found
    if form.nested and (said := reader.read(rest)) is not None:
        piece.put(whose, said.step, ((v.name, v.value) for v in said.values if columns.has_room(whose, v.name)))
        return
    if form.names:
        step = _step_in(form, pieces)
        for place, value, at_line, at_step in columns.of(form, whose):
            value(float(pieces[place]))
            at_line(number)
            at_step(step)
        if number % EVERY == 1:
            _note_decimals(form, pieces, whose, piece)
        if form.total >= 0 and any(name.lower() in EPOCHS for _, name, _ in form.names):
            piece.per_epoch = step_of(pieces[form.total]) or 0
    if not form.table:
        shapes.note(form, pieces, rest, whose, ranked)


def _step_in(form: Form, pieces: list[str]) -> int:
    if form.step < 0:
        counts = in_epochs.counts(form, pieces)
        return as_count(in_epochs.count_of([pieces[place] for place in counts])) if counts else NO_STEP
    step = step_of(pieces[form.step])
    return NO_STEP if step is None else step


def _note_decimals(form: Form, pieces: list[str], rank: int, piece: Piece) -> None:
    """To how many decimals the line's metrics are printed."""
    for place, name, rounded in form.names:
        column = piece.columns.get((rank, name))
        decimals = decimals_of(pieces[place]) if rounded else None
        if column is not None and decimals is not None:
            column.decimals = max(column.decimals, decimals)


def read_json(lines: Iterable[str], rank: int, piece: Piece) -> None:
    """A JSON object a line; `rank` in it, where it is there, names the rank."""
    columns, objects, decode = _Columns(piece), Objects(), msgspec.json.Decoder().decode
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            said = decode(line)
        except (msgspec.DecodeError, RecursionError):
            said = _decoded(line)
        if isinstance(said, dict):
            whose = said.pop("rank", rank)
            objects.take(said, whose if isinstance(whose, int) and 0 <= whose < 1 << 20 else rank, number)
        elif line and not line.isspace():
            piece.skip(NO_JSON)
    nulls: list[tuple[int, tuple[str, ...], list[int], list[tuple[Any, ...]]]] = []
    for whose, names, at, rows in objects.tables():
        table = list(zip(*rows, strict=True))
        if all(NUMBERS.issuperset(map(type, column)) for column in table):  # as nearly all have
            for name in names:
                if name.lower() not in STEP_NAMES and columns.has_room(whose, name):
                    piece.column(whose, name)
            put_numbers(piece, whose, names, at, table)
        else:
            _put_one_by_one(piece, columns, whose, names, zip(at, rows, strict=True))
            nulls.append((whose, names, at, table))
    piece.lines = number
    piece.settle()
    for whose, names, at, table in nulls:
        _note_nulls(piece, whose, names, at, table)


def _note_nulls(
    piece: Piece, rank: int, names: Sequence[str], at: list[int], table: Sequence[Sequence[Any]]
) -> None:  # fmt: skip
    """Metrics that are null in all records behind the last in which they are not."""
    for name, values in zip(names, table, strict=True):
        if None not in values:
            continue
        column = piece.columns.get((rank, name))
        last = column.lines[-1] if column is not None and len(column.lines) else 0
        count = sum(value is None and line > last for line, value in zip(at, values, strict=True))
        if count:
            piece.nulls[rank, name] = piece.nulls.get((rank, name), 0) + count


def _decoded(line: str) -> object:
    """As Python's own reader takes it, with NaN and Infinity; None where it does not either."""
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found


def _put_one_by_one(
    piece: Piece, columns: _Columns, rank: int, names: Sequence[str], rows: Iterable[tuple[int, tuple[Any, ...]]]
) -> None:  # fmt: skip
    """Objects with other things than numbers in them, too."""
    for line, row in rows:
        if (found := from_mapping(dict(zip(names, row, strict=True)))) is not None:
            piece.lines = line
            piece.put(rank, found.step, ((v.name, v.value) for v in found.values if columns.has_room(rank, v.name)))


def read_csv(lines: Iterable[str], rank: int, piece: Piece, header: list[str], delimiter: str) -> None:
    """Rows below a header; fields that are no numbers are passed over."""
    place = next((n for n, name in enumerate(header) if name.lower().replace(" ", "_") in STEP_NAMES), -1)
    columns = [None if n == place else piece.column(rank, name) for n, name in enumerate(header)]
    for line in lines:
        piece.lines += 1
        if not line:
            continue
        if delimiter == ";":  # as spreadsheets write it where the comma stands before decimals
            line = line.replace(",", ".")
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
