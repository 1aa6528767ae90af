"""Buffers that hold a row for each sample: ranks that each write the rows of their own samples differ on purpose.

What is known is that a step writes few of the rows, and the next one others. A table of what all ranks share, as
prototypes of many classes, can look the same: so it is worth knowing, and no more.
"""

from diagd.daemon.detectors import words
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Entry

FEW = 8  # times as many rows as a step writes, at least
BOTH = 0.1  # of the rows that a step writes, at most, were written by the one before: as where samples are drawn anew
FACT = "buffers/rows"


def of_samples(state: JobState, entry: Entry) -> str:
    """In words, that all its ranks write it by rows of samples; empty where not, or where it is not known of all."""
    told = {rank: _written(state, rank, entry.name) for rank in sorted(entry.infos)}
    if not told or not all(_is_by_samples(counts) for counts in told.values()):
        return ""
    rank, counts = next(iter(told.items()))
    text = f"one step has written {counts[0]} of its {counts[3]} rows on {words.ranks_text((rank,))}, the next one"
    return f"{text} {counts[1]}, of which {counts[2]} the same: rows of this rank's own samples, as it seems"


def _written(state: JobState, rank: int, name: str) -> list[int]:
    """Rows that the one step has written, the other, both, and all there are."""
    fact = state.signals.fact(rank, FACT)
    lines = [line.split("\t") for line in fact[1].splitlines()] if fact is not None else []
    return next(([int(count) for count in counts] for known, *counts in lines if known == name), [])


def _is_by_samples(counts: list[int]) -> bool:
    if len(counts) != 4:
        return False
    one, other, both, rows = counts
    return min(one, other) > 0 and both <= BOTH * min(one, other) and rows >= FEW * max(one, other)
