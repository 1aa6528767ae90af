"""What the lines of a training log say, number by number: one definition for the rank that prints and who reads logs.

A line is split at its numbers. What stands between them is its form, and of a form it is worked out once which of its
numbers has which name; a log has few forms. Understood are `key=value`, `key: value`, `key value`, JSON objects and
Python dicts on one line, tables with bars or with a header, tqdm's and other progress bars, and `Step [100/600]`, also
with colours. What else is counted in a line (see `metric_counts`) is no step for the rank, which knows its own.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from diagd.probes.box.metric_counts import counted
from diagd.probes.box.metric_tables import Table

MAX_LINE = 4000  # characters: longer ones are data, not a report of a step
MAX_VALUES = 64  # of one line
MAX_NAME = 100  # characters
_FORMS = 1024  # that are remembered
_EXACT_DECIMALS = 9  # printed with more than that, a number is not rounded for people


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


STEP_NAMES = _set(
    "step iter iteration it update global_step global_iter train_step training_step num_updates train_iter n_iter "
    "optimizer_step optim_step opt_step cur_step current_step trainer/global_step train/global_step global_iteration "
    "train_iteration gstep update_step train/step step_num steps _step"
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_NUMBER = re.compile(
    r"(?<![\w.])([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:[nN]a[nN]|NAN|[iI]nf(?:inity)?|INF)(?![\w.])))"
)
_THOUSANDS = re.compile(r"(?i)(?:step|steps|iter|iteration|iterations)\b\W{0,3}\d{1,3}(?:,\d{3})+(?![\d.])")
_WORD = r"(?:\|{1,2}[\w∇]+\|{1,2}|[A-Za-z∇][\w./@%()∇-]*)"
_NEXT_WORD = rf"(?: (?:{_WORD}|\([\w/%]+\)))"
_QUOTED = re.compile(r"""(?<!\w)(["'])([^"']{1,100})\1\s*[:=]\s*["']?(?:[A-Za-z_.0-9]*\()?$""")
_ASSIGNED = re.compile(rf"({_WORD}{_NEXT_WORD}{{0,5}})\s*[:=]\s*[\"']?(?:[A-Za-z_.0-9]*\()?$")
_SPACED = re.compile(rf"({_WORD}{_NEXT_WORD}{{0,3}})[ \t]+$")
_BRACKETED = re.compile(rf"({_WORD}{_NEXT_WORD}{{0,2}}):?\s*[\[(]\s*$")
_BARRED = re.compile(rf"^\s*[|│┃]\s+({_WORD}{_NEXT_WORD}{{0,4}})\s+[|│┃]\s*$")
_UNIT = re.compile(r"^[A-Za-z%µ][\w%/]*")
_BAR = re.compile(r"\s*\d+%\|.*?\|")
# Before a number without a sign between, these speak of something else than a metric's value.
_NO_NAMES = _set(
    "of in at to for from by than the a an is was are were after before with took and or no not has have had got on "
    "about over under until till per plus any as only every between within first last next all these those more less "
    "up down top now this that did does do be found contains skip skipping rank worker seed port line pid gpu"
)
_SOURCE = (".py", ".pyx", ".cpp", ".cc", ".cu", ".h", ".hpp", ".c", ".rs", ".go")  # a file, and the number is its line
_LEVELS = _set("DEBUG INFO WARNING WARN ERROR CRITICAL NOTICE I W E")


class Value(NamedTuple):
    """A metric's value; `decimals` where it was printed rounded to so many, else None."""

    name: str
    value: float
    decimals: int | None


class Line(NamedTuple):
    """What one line says."""

    step: int | None
    values: list[Value]


class Form(NamedTuple):
    """What the numbers of all lines of one form are; the pieces of a line are texts and numbers by turns."""

    names: tuple[tuple[int, str, bool], ...]  # place of the number, its metric, whether it may be rounded
    step: int  # place of the step's number, -1 none
    nested: bool  # objects within objects: to be read as JSON, where it is JSON
    table: bool = False  # named by a header, so that lines of the same form may mean something else elsewhere
    counter: int = -1  # place of a number that may count steps where no step is said, -1 none
    total: int = -1  # place of what the step or the count goes up to, where it stands with it; -1 none


class Reader:
    """Reads lines; remembers their forms."""

    def __init__(self) -> None:
        self._forms: dict[tuple[str, ...], Form] = {}
        self._table = Table()
        self._tables: dict[tuple[tuple[int, str], ...], Form] = {}

    def read(self, line: str) -> Line | None:
        """What the line says; None where that is nothing."""
        found = self.form_of(line)
        if found is None:
            return None
        form, pieces = found
        said = _from_json(line) if form.nested else None
        if said is not None or not form.names:
            return said
        return _filled(form, pieces)

    def form_of(self, line: str) -> tuple[Form, list[str]] | None:
        """The form and the pieces of a line; None where it has no number, or is too long."""
        if len(line) > MAX_LINE:
            return None
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        if "," in line:
            line = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), line)
        if "%|" in line:
            line = _BAR.sub(" ", line, count=1)
        pieces = _NUMBER.split(line)
        if len(pieces) < 3:
            self._table.begin(line, STEP_NAMES)
            return None
        key = tuple(pieces[::2])
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _FORMS:
                self._forms.clear()
            form = self._forms[key] = _form(key)
        if not form.names and (columns := self._table.numbers(line, _NUMBER)):
            form = self._tables.setdefault(columns, _of_columns(columns))
        return form, pieces


def step_of(text: str) -> int | None:
    """A step as it is printed; None where it is no whole number."""
    return int(text) if text.isdecimal() and len(text) < 16 else None


def _filled(form: Form, pieces: list[str]) -> Line:
    values = []
    for place, name, rounded in form.names:
        text = pieces[place]
        values.append(Value(name, float(text), decimals_of(text) if rounded else None))
    return Line(step_of(pieces[form.step]) if form.step >= 0 else None, values)


def decimals_of(text: str) -> int | None:
    """To how many decimals a number was printed; None where it is exact, or not known."""
    _, point, after = text.partition(".")
    if not point or not after.isdecimal():
        return None
    return len(after) if len(after) <= _EXACT_DECIMALS else None


def _form(texts: tuple[str, ...]) -> Form:
    """Which number is what, from the texts around them."""
    nested = texts[0].lstrip().startswith("{") and sum(text.count("{") for text in texts) > 1
    names: list[tuple[int, str, bool]] = []
    step = -1
    seen: set[str] = set()
    for number, (before, after) in enumerate(zip(texts, texts[1:], strict=False)):  # noqa: RUF007 - no import for it
        name, exact = _name(before if number == 0 else _UNIT.sub("", before, count=1), after)
        plain = name.lower().partition("(")[0].strip().replace(" ", "_")
        if plain in STEP_NAMES:
            step = 2 * number + 1 if step < 0 else step
        elif name and plain not in seen and len(names) < MAX_VALUES:
            seen.add(plain)
            names.append((2 * number + 1, name, not exact))
    return Form(tuple(names), step, nested, False, *counted(texts, step, names))


def _of_columns(columns: tuple[tuple[int, str], ...]) -> Form:
    """That of a table's line, from its numbers' places and names."""
    named = [(2 * number + 1, name, name.lower().replace(" ", "_") in STEP_NAMES) for number, name in columns]
    step = next((place for place, _, is_step in named if is_step), -1)
    return Form(tuple((place, name, True) for place, name, is_step in named if not is_step), step, False, table=True)


def _name(before: str, after: str) -> tuple[str, bool]:
    """The name of the number between two texts, empty for none; and whether it is written as programs write it."""
    if after[:1].isalpha() or after in (":", "-", ",", ".", "_") or (after[:1] == "/" and after[1:].strip()):
        return "", False  # a unit, a time, a date, a list, a path
    found = _QUOTED.search(before)
    if found is not None:
        return found[2][:MAX_NAME], True
    bracketed = after.lstrip()[:1] in ("/", "]")
    for pattern in (_ASSIGNED, _BARRED, _BRACKETED) if bracketed else (_ASSIGNED, _BARRED):
        found = pattern.search(before)
        if found is not None:
            return _cleaned(found, before), False
    found = _SPACED.search(before)
    if found is None or found[1].rpartition(" ")[2].lower() in _NO_NAMES:
        return "", False
    return _cleaned(found, before), False


def _cleaned(found: re.Match[str], before: str) -> str:
    words = [word for word in found[1].split() if word not in _LEVELS and word not in ("|", "-")]
    within = before[max(found.start() - 1, 0) : found.start()] in ("'", '"')  # a string, such as a device's name
    if not words or within or words[-1].endswith(_SOURCE):
        return ""
    return " ".join(words)[:MAX_NAME].rstrip("/.-:")


def _from_json(line: str) -> Line | None:
    try:
        said = json.loads(line[line.index("{") : line.rindex("}") + 1])
    except (ValueError, RecursionError):
        return None
    return from_mapping(said) if isinstance(said, dict) else None


def from_mapping(said: Mapping[str, Any]) -> Line | None:
    """What an object with metrics in it says; of those inside it too, by `outer/inner`."""
    step: int | None = None
    values: list[Value] = []
    for name, value in flattened(said):
        if name.lower() in STEP_NAMES:
            step = int(value) if step is None and value == value and abs(value) < 1e15 else step
        elif len(values) < MAX_VALUES:
            values.append(Value(name[:MAX_NAME], value, None))
    return Line(step, values) if values else None


def flattened(said: Mapping[str, Any], prefix: str = "", depth: int = 3) -> Iterator[tuple[str, float]]:
    """The numbers in an object and in objects inside it; also those that are written as strings."""
    for name, value in said.items():
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, Mapping):
            if depth:
                yield from flattened(value, f"{prefix}{name}/", depth - 1)
            continue
        if isinstance(value, str) and not (len(value) < 30 and _NUMBER.fullmatch(value)):
            continue
        try:
            yield f"{prefix}{name}", float(value)
        except (TypeError, ValueError, OverflowError):
            continue
