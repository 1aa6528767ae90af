"""Whose line of a log it is, where several ranks have written into one: `[rank3]:`, `rank 3 …`, `INFO [Rank 3/8] …`;
and which lines are diagd's own, and nobody's.
"""

import re
from typing import NamedTuple

MOST_FRONT = 120  # characters of a line within which it stands
_NUMBER = r"[ :=#_-]{0,2}(\d{1,6})(?:/\d{1,6})?"
_FRONT = re.compile(rf"\s*((?:rank|gpu){_NUMBER})(?![\w.])", re.IGNORECASE)
_BRACKETED = re.compile(rf"[\[<]\s?((?:(?:global[ _])?rank|default|gpu){_NUMBER})\s?[\]>]", re.IGNORECASE)
_BEFORE_ONE = re.compile(r"(?:rank|default|gpu)[ :=#_-]{0,2}$", re.IGNORECASE)
_OWN = re.compile(r"\W*diagd: |.{0,40}\s{6}(?:where|waiting|because|do|more|dump) {2,}\S")


class Told(NamedTuple):
    """The rank, and the words that say so, which are no metric's."""

    rank: int
    words: str
    at: int  # where they begin

    def without(self, line: str) -> str:
        """The line without them."""
        return line[: self.at] + line[self.at + len(self.words) :]


def is_own(line: str) -> bool:
    """Whether it is a line of diagd's own verdicts, as a log of `diagd run … 2>&1` holds them."""
    return _OWN.match(line, 0, MOST_FRONT) is not None


def told(line: str) -> Told | None:
    """Whose the line says it is; None where it says nothing of that."""
    front = line[:MOST_FRONT]
    lower = front.lower()
    if "rank" not in lower and "default" not in lower and "gpu" not in lower:
        return None
    found = _FRONT.match(front) or _BRACKETED.search(front)
    return Told(int(found[2]), found[1], found.start(1)) if found is not None else None


def may_tell(pieces: list[str]) -> bool:
    """Whether a line of these pieces, texts and numbers by turns, may name a rank where its numbers are others."""
    return any(_BEFORE_ONE.search(text) for text in pieces[:-1:2])


def piece_of(pieces: list[str], at: int) -> tuple[int, int]:
    """Which of a line's texts a place lies in, and how far in it; texts and numbers come by turns."""
    begin = 0
    for place, text in enumerate(pieces):
        if place % 2 == 0 and at <= begin + len(text):
            return place, max(at - begin, 0)
        begin += len(text)
    return len(pieces) - 1, len(pieces[-1])
