"""Which part of a tensor differs: by the parts' sums, of those that lie on ranks and of the same parts of a file."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from diagd.daemon.analyze.ledger_tensors import Tensor
from diagd.daemon.regions import in_words

FILE_PARTS = 64  # into which two files' tensors are split
_SHOWN = 3

Totals = Mapping[str, Mapping[str, str]]  # region -> its part of the sum -> rank ranges


def wanted(one: Tensor, other: Tensor) -> list[str]:
    """The regions of which a file's part of the sum is to be known."""
    if one.of_file and other.of_file:
        return _rows(one.shape) if one.shape == other.shape else []
    live = other if one.of_file else one
    return list(live.parts) if one.of_file or other.of_file else []


def in_which_part(shape: Sequence[int], mine: Totals, theirs: Totals) -> str:
    """In words where they differ, with the ranks that the parts lie on; empty where that cannot be told."""
    common = [region for region in mine if region in theirs]
    apart = [region for region in common if set(mine[region]) != set(theirs[region])]
    if not apart or len(apart) == len(common):
        return ""  # it is no place
    told = [_told(region, shape, mine[region], theirs[region]) for region in apart[:_SHOWN]]
    more = f" and {len(apart) - _SHOWN} more of {len(common)} parts" if len(apart) > _SHOWN else ""
    return f"in {', '.join(told)}{more}"


def _told(region: str, shape: Sequence[int], *held: Mapping[str, str]) -> str:
    ranks = dict.fromkeys(ranks for one in held for ranks in one.values() if ranks)
    where = ", ".join(f"rank{'s' * (not said.isdigit())} {said}" for said in ranks)
    return f"{in_words(region, shape)} ({where})" if where else in_words(region, shape)


def _rows(shape: Sequence[int]) -> list[str]:
    if not shape or shape[0] < 2:
        return []
    parts = min(shape[0], FILE_PARTS)
    edges = [shape[0] * part // parts for part in range(parts + 1)]
    rest = "".join(f",0:{extent}" for extent in shape[1:])
    return [f"{first}:{stop}{rest}" for first, stop in pairwise(edges)]
