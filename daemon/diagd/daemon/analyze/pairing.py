"""Which tensors of two ledgers are one: by their names, whatever wrappers and checkpoints have made of these."""

from collections import Counter
from collections.abc import Callable, Iterator

from diagd.daemon.analyze.ledger_tensors import Tensor

_COMMON = 64  # names that end alike and are still looked at as pairs
_DDP = "module"

Pair = tuple[Tensor, Tensor]
Found = tuple[list[Pair], list[Tensor], list[Tensor]]  # and what is left of each side
Name = Callable[[Tensor], str]


def paired(left: list[Tensor], right: list[Tensor]) -> Found:
    """Tensors of the same name, for their prefixes; of the rest, such as wrap a part of a model in DDP."""
    pairs, left, right = _by(_bare, left, right)
    # `module` may be a name of the script's own as well.
    more, *_ = _by(_unwrapped, _sole(left), _sole(right))
    taken = {id(tensor) for pair in more for tensor in pair}
    left, right = ([t for t in side if id(t) not in taken] for side in (left, right))
    return pairs + more, left, right


def _bare(tensor: Tensor) -> str:
    return tensor.bare


def _unwrapped(tensor: Tensor) -> str:
    return ".".join(part for part in tensor.bare.split(".") if part != _DDP)


def _sole(side: list[Tensor]) -> list[Tensor]:
    """Those whose names without it are no others'."""
    names = Counter(map(_unwrapped, side))
    return [tensor for tensor in side if names[_unwrapped(tensor)] == 1]


def _by(name: Name, left: list[Tensor], right: list[Tensor]) -> Found:
    """Those of the same name; then, again and again, those that differ in the prefixes that fit most of them."""
    pairs: list[Pair] = []
    prefixes: tuple[str, str] | None = ("", "")
    while prefixes is not None:
        by_name = {name(one).removeprefix(prefixes[1]): one for one in right if name(one).startswith(prefixes[1])}
        fit = [
            (one, other)
            for one in left
            if name(one).startswith(prefixes[0]) and (other := by_name.get(name(one).removeprefix(prefixes[0])))
        ]
        pairs += fit
        taken = {id(tensor) for pair in fit for tensor in pair}
        left, right = ([t for t in side if id(t) not in taken] for side in (left, right))
        prefixes = _best_prefixes(list(map(name, left)), list(map(name, right)))
    return pairs, left, right


def _best_prefixes(left: list[str], right: list[str]) -> tuple[str, str] | None:
    ends: dict[str, list[str]] = {}
    for other in right:
        for prefix, end in _ends(other):
            ends.setdefault(end, []).append(prefix)
    votes: Counter[tuple[str, str]] = Counter()
    for one in left:
        for prefix, end in _ends(one):
            others = ends.get(end, ())
            if len(others) <= _COMMON:
                # head.weight is not tail.weight, but may be weight.
                votes.update((prefix, theirs) for theirs in others if "." in end or not (prefix and theirs))
    # Of those that fit as many, the shortest: the rest of a name is then the longest.
    best = min(votes.items(), key=lambda vote: (-vote[1], len(vote[0][0]) + len(vote[0][1]), vote[0]), default=None)
    return best[0] if best is not None else None


def _ends(name: str) -> Iterator[tuple[str, str]]:
    """Each way to part a dotted name into a prefix and the rest."""
    parts = name.split(".")
    for count in range(len(parts)):
        prefix = "".join(f"{part}." for part in parts[:count])
        yield prefix, name.removeprefix(prefix)
