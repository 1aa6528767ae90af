"""Tables whose first line names the columns: `| epoch | loss | acc |`, or words with spaces between them."""

import re

_BARS = re.compile(r"[|│┃]")
_GAPS = re.compile(r"\s{2,}|\t")
_NAME = re.compile(r"[A-Za-z∇][\w./%()∇ -]*")
MOST = 64  # columns


class Table:
    """The last header that was met; the lines of its table may come one by one, among others."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._barred = False

    def begin(self, line: str, step_names: frozenset[str]) -> None:
        """A line without a number: a header, where it has columns and one of them is a step, an epoch or a loss."""
        barred = _BARS.search(line) is not None
        if not barred and _GAPS.search(line.strip()) is None:
            return
        cells = [cell for cell in _cells(line, barred) if cell]
        words = [cell.lower() for cell in cells]
        told = any(word in step_names or word == "epoch" or "loss" in word for word in words)
        named = all(_NAME.fullmatch(cell) is not None and (barred or " " not in cell) for cell in cells)
        if told and named and 2 <= len(set(words)) == len(cells) <= MOST:
            self._names, self._barred = cells, barred

    def numbers(self, line: str, number: re.Pattern[str]) -> tuple[tuple[int, str], ...]:
        """Of a line of the table which of its numbers, from 0, are a column's, and whose; none of another line.

        A cell that is no number, as a duration, has no metric.
        """
        if not self._names or (_BARS.search(line) is not None) is not self._barred:
            return ()
        cells = _cells(line, self._barred) if self._barred else line.split()
        if len(cells) != len(self._names):
            return ()
        found, place = [], 0
        for name, cell in zip(self._names, cells, strict=True):
            if number.fullmatch(cell.removesuffix("%")) is not None:
                found.append((place, name))
            place += sum(1 for _ in number.finditer(cell))
        return tuple(found) if 2 * len(found) >= len(cells) else ()


def _cells(line: str, barred: bool) -> list[str]:
    if not barred:
        return [cell.strip() for cell in _GAPS.split(line.strip())]
    cells = [cell.strip() for cell in _BARS.split(line)]
    return cells[1 if not cells[0] else 0 : -1 if not cells[-1] else None]
