"""Numbers that count towards another, such as `[1200/2000]`, tqdm's `35/100 [00:03<…` and `batch 20`.

They may be of an evaluation, or of batches of which several make a step. So they stand in for the step only where a log
is all there is, and says no step.
"""

import re
from collections.abc import Sequence

_NAMED = frozenset({"batch", "batch_idx", "batch_index", "batch_id", "minibatch", "mini-batch", "mini_batch"})
_OPENS = re.compile(r"(?:^|[\s\]),:|-])[\[(]\s*$")
_CLOSES = re.compile(r"\s*[\])]")
_ELAPSED = re.compile(r"\s\[$")  # tqdm's `[00:03<00:06`
_BAR = re.compile(r"\s*(?:\[[=>. -]+\]|[━╸╺]+)")
_TALLY = re.compile(r"it \[$")  # tqdm's where the end is not known: `35it [00:03, `


def counted(texts: Sequence[str], step: int, names: Sequence[tuple[int, str, bool]]) -> tuple[int, int]:
    """The places of such a number and of what it goes up to, -1 where there is none.

    Args:
        texts: Those between a line's numbers.
        step: The place of the step, -1 none: of that, too, the end may be told.
        names: Of the line's numbers: place, name and whether it is exact.
    """
    if step >= 0:
        number = step // 2
        return -1, step + 2 if _is_bracketed(texts, number) else -1
    taken = {place for place, _, _ in names}
    for number in range(len(texts) - 1):
        place = 2 * number + 1
        if place not in taken and _is_count(texts, number):
            return place, place + 2 if _has_end(texts, number) else -1
    named = next((place for place, name, _ in names if name.lower().rpartition(" ")[2] in _NAMED), -1)
    return named, named + 2 if named >= 0 and _has_end(texts, named // 2) else -1


def _is_count(texts: Sequence[str], number: int) -> bool:
    if not _has_end(texts, number):
        return number + 2 < len(texts) and _TALLY.search(texts[number + 1]) is not None and texts[number + 2] == ":"
    opens, behind = texts[number], texts[number + 2]
    if _OPENS.search(opens):
        return _CLOSES.match(behind) is not None
    tqdm = number + 3 < len(texts) and _ELAPSED.search(behind) is not None and texts[number + 3] == ":"
    return tqdm or _BAR.match(behind) is not None


def _has_end(texts: Sequence[str], number: int) -> bool:
    return texts[number + 1].strip() == "/" and number + 2 < len(texts)


def _is_bracketed(texts: Sequence[str], number: int) -> bool:
    opens = texts[number].rstrip().endswith(("[", "("))
    return opens and _has_end(texts, number) and _CLOSES.match(texts[number + 2]) is not None
