"""How people write ranks."""

from collections.abc import Iterable


def rank_ranges(ranks: Iterable[int], *, named: bool = False) -> str:
    """`0-2,4-7`; with `named`, `ranks 0-2,4-7` or `rank 3`. Two neighbours are `1,2`; none are `none` if named."""
    ordered = sorted(set(ranks))
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ",".join(_run(first, last) for first, last in runs)
    if not named:
        return text
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {text}" if ordered else "no rank"


def _run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
