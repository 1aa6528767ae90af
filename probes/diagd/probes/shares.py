"""Which part of a whole tensor lies on this rank: read from what split it, never from its values."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

Run = tuple[int, int]  # from, to before
MAX_BOXES = 1024  # of a rank's share of one tensor
WHOLE = ""


class Unknown(ValueError):
    """Where the part lies in the whole is not known, and why."""


class Piece(NamedTuple):
    """A box of the whole, or a run of its elements in row-major order, as a part of what lies here."""

    here: tuple[slice, ...]  # of the local tensor; of its flat form, where `offsets` is none
    first: int  # of a run
    offsets: tuple[int, ...] | None


class Share(NamedTuple):
    """What of one tensor lies here; `region` is the same text on each rank that holds the same part, "" the whole."""

    name: str
    shape: tuple[int, ...]  # of the whole
    region: str
    numel: int  # here
    pieces: tuple[Piece, ...]

    def blocks(self, local: Any, adding: Any) -> list[Any]:
        """The blocks of diagd.cuda_ext.adding that make it up, of the local tensor or of one that lies like it."""
        found = []
        for piece in self.pieces:
            if piece.offsets is None:
                found.append(adding.run_at(local.reshape(-1)[piece.here[0]] if piece.here else local, piece.first))
            else:
                found.append(adding.block_at(local[piece.here], piece.offsets, self.shape))
        return found


def whole(name: str, shape: Sequence[int]) -> Share:
    """All of it lies here."""
    shape = tuple(shape)
    return Share(name, shape, WHOLE, prod(shape), (Piece((), 0, None),))


def of_flat(name: str, shape: Sequence[int], here: Run, first: int) -> Share:
    """A run of its elements, from `first` on, lies at these places of a flat local tensor."""
    shape, count = tuple(shape), here[1] - here[0]
    if count == prod(shape):
        return Share(name, shape, WHOLE, count, (Piece((slice(*here),), 0, None),))
    return Share(name, shape, f"@{first}:{first + count}", count, (Piece((slice(*here),), first, None),))


def of_dtensor(name: str, tensor: Any) -> Share:
    """By its mesh and placements.

    Raises:
        Unknown: The values are to be summed first, the placement is of a kind that is not known here, or what lies
            here is of another shape than they say.
    """
    spec = tensor._spec
    shape, here = tuple(map(int, spec.shape)), spec.mesh.get_coordinate()
    if here is None:
        raise Unknown("this rank is not in its mesh")
    dims: list[list[Run]] = [[(0, extent)] for extent in shape]
    for placement, size, at in zip(spec.placements, spec.mesh.mesh.shape, here, strict=True):
        if not placement.is_replicate():
            _cut(dims, placement, int(size), int(at))
    local = tuple(sum(stop - first for first, stop in runs) for runs in dims)
    if local != tuple(tensor._local_tensor.shape):
        raise Unknown(f"{list(tensor._local_tensor.shape)} of it lie here, and by its placement {list(local)} should")
    if local == shape:
        return whole(name, shape)
    return _of_boxes(name, shape, dims)


def _cut(dims: list[list[Run]], placement: Any, ranks: int, at: int) -> None:
    if placement.is_partial():
        raise Unknown("its values are yet to be summed over ranks")
    kind = type(placement).__name__
    if kind not in ("Shard", "_StridedShard"):
        raise Unknown(f"its placement is {placement}")
    runs = dims[placement.dim]
    pieces = int(placement.split_factor) if kind == "_StridedShard" else 1
    length = sum(stop - first for first, stop in runs)
    chunks = [_chunk(*_chunk(0, length, pieces, piece), ranks, at) for piece in range(pieces)]
    dims[placement.dim] = _joined(run for first, stop in chunks for run in _taken(runs, first, stop))


def _chunk(first: int, stop: int, chunks: int, number: int) -> Run:
    """As torch.chunk has it: all of one size but the last that is not empty."""
    size = -(-(stop - first) // chunks)
    return min(first + number * size, stop), min(first + (number + 1) * size, stop)


def _taken(runs: Sequence[Run], first: int, stop: int) -> Iterator[Run]:
    """What lies from one place to another of these runs, put one behind the other."""
    before = 0
    for start, end in runs:
        left, right = max(first - before, 0), min(stop - before, end - start)
        if left < right:
            yield start + left, start + right
        before += end - start


def _joined(runs: Iterator[Run]) -> list[Run]:
    found: list[Run] = []
    for first, stop in runs:
        if found and found[-1][1] == first:
            found[-1] = found[-1][0], stop
        else:
            found.append((first, stop))
    return found


def _of_boxes(name: str, shape: tuple[int, ...], dims: Sequence[Sequence[Run]]) -> Share:
    if prod(map(len, dims)) > MAX_BOXES:
        raise Unknown("too many pieces of it lie here")
    pieces = []
    for box in product(*(list(_placed(runs)) for runs in dims)):
        pieces.append(Piece(tuple(here for here, _ in box), 0, tuple(first for _, (first, _) in box)))
    region = ",".join("+".join(f"{first}:{stop}" for first, stop in runs) for runs in dims)
    numel = prod(sum(stop - first for first, stop in runs) for runs in dims)
    return Share(name, shape, region, numel, tuple(pieces))


def _placed(runs: Sequence[Run]) -> Iterator[tuple[slice, Run]]:
    """Each run with where it lies here."""
    before = 0
    for first, stop in runs:
        yield slice(before, before + stop - first), (first, stop)
        before += stop - first
