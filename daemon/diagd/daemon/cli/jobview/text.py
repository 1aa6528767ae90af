"""Text for a window: spans with a style, clean of what a terminal would obey, cut to the cells that there are."""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

STYLES = ("plain", "dim", "title", "good", "warn", "bad")
ELLIPSIS = "…"


class Span(NamedTuple):
    """A piece of a line in one style; `chosen` where the cursor is."""

    text: str
    style: str = "plain"
    chosen: bool = False


Line = tuple[Span, ...]


def line(text: str, style: str = "plain") -> Line:
    """A line in one style."""
    return (Span(text, style),)


def clean(value: object) -> str:
    """One line without control characters: names come from the job, and a terminal obeys escape sequences."""
    text = str(value)
    if text.isprintable():
        return text
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def cells(text: str) -> int:
    """How many cells of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis, in at most `width` cells."""
    if cells(text) <= width:
        return text
    kept, used = "", 0
    for char in text:
        used += _cells_of(char)
        if used > width - 1:
            break
        kept += char
    return kept + ELLIPSIS if width > 0 else ""


def fit(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly `width` cells."""
    short = clip(text, width)
    padding = " " * (width - cells(short))
    return padding + short if right else short + padding


def clip_line(spans: Iterable[Span], width: int) -> Line:
    """As many of the spans as `width` cells hold."""
    kept, left = [], width
    for span in spans:
        text = clip(span.text, left)
        if text:
            kept.append(span._replace(text=text))
            left -= cells(text)
        if text != span.text:
            break
    return tuple(kept)


def plain(spans: Line) -> str:
    """The line without its styles."""
    return "".join(span.text for span in spans).rstrip()


def wrap(text: str, width: int, indent: int = 0) -> list[str]:
    """The text in lines of at most `width` cells, broken between words where that goes; later ones indented."""
    room = max(width, 1)
    hanging = " " * min(indent, room - 1)
    lines, current, filled = [], "", False
    for gap, word in re.findall(r"( *)([^ ]+)", text):
        if filled and cells(current) + len(gap) + cells(word) > room:
            lines.append(current)
            current, gap = hanging, ""
        current, filled = current + gap + word, True
        while cells(current) > room:  # a word, or what it is indented by, longer than the line
            piece = clip(current, room + 1)[:-1]
            lines.append(piece)
            current = hanging + current[len(piece) :]
    return [*lines, current]


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def short(seconds: float | None) -> str:
    """A short time as people say it; `-` where it is not known."""
    if seconds is None:
        return "-"
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1000 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"
