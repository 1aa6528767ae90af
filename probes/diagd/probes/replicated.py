"""Parameters that are split within one replica of a model whose others are also kept the same over the replicas.

A mesh of one dimension says nothing of what lies beside it. Where the rest of the model is on a mesh of two, replicas
and shards, and this one on its shards alone, the same shard of the other replicas is to hold the same: something has to
reduce its gradients over them.
"""

from collections import Counter
from typing import Any

from diagd.probes.placement import Placement, is_up


def over_replicas(tensors: list[tuple[Any, Placement]]) -> list[Placement]:
    """The placements of one model's tensors, with those replicas that are known by the others.

    Args:
        tensors: Each with its placement by itself.
    """
    if not is_up():
        return [placement for _, placement in tensors]
    known = Counter(
        (shards, placement.peers)
        for tensor, placement in tensors
        if placement.peers and (shards := _shards_beside(tensor, placement.peers))
    )
    if not known:
        return [placement for _, placement in tensors]
    (shards, peers), count = known.most_common(1)[0]
    lone = [_line(tensor) == shards and (placement.local or bool(placement.beside)) for tensor, placement in tensors]
    if sum(lone) > count:  # then it is the others that are the exception
        return [placement for _, placement in tensors]
    made = [
        placement._replace(text=f"{placement.text}, of replicas", peers=peers, local=False, beside=())
        for _, placement in tensors
    ]
    return [new if alone else old for new, alone, (_, old) in zip(made, lone, tensors, strict=True)]


def _shards_beside(tensor: Any, peers: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks of this one's own replica, for a tensor that is split over them and the same over `peers`."""
    spec = getattr(tensor, "_spec", None)
    if spec is None or spec.mesh.ndim != 2 or sum(placement.is_replicate() for placement in spec.placements) != 1:
        return ()
    here = spec.mesh.get_coordinate()
    if here is None:
        return ()
    where = tuple(
        at if placement.is_replicate() else slice(None) for placement, at in zip(spec.placements, here, strict=True)
    )
    return tuple(sorted(spec.mesh.mesh[where].flatten().tolist()))


def _line(tensor: Any) -> tuple[int, ...]:
    """The ranks that a tensor is split over, on a mesh of one dimension."""
    spec = getattr(tensor, "_spec", None)
    return tuple(sorted(spec.mesh.mesh.flatten().tolist())) if spec is not None and spec.mesh.ndim == 1 else ()
