"""The faults of a drill that lie in how ranks communicate; some need a part of every rank, to lead where they lead."""

import sys
from typing import Any

from diagd.probes.faults import Fault

_NO_KEY = "diagd/drill/key-that-nobody-sets"
_ODD_NUMEL = 12_289  # elements: a size that no model's gradients are likely to have


def mismatch(fault: Fault, rank: int) -> None:
    """An all_reduce of another size than any that the others come to."""
    if (dist := _distributed()) is not None:
        dist.all_reduce(_zeros(dist, _ODD_NUMEL))


def ask_store(fault: Fault, rank: int) -> None:
    """Wait for a key that does not come."""
    if (dist := _distributed()) is not None:
        dist.distributed_c10d._get_default_store().get(_NO_KEY)


def leave(fault: Fault, rank: int) -> None:
    """Destroy all groups."""
    if (dist := _distributed()) is not None:
        dist.destroy_process_group()


def cycle(fault: Fault, rank: int) -> None:
    """All reduce over two groups, and the fault's ranks in another order than the rest."""
    if (dist := _distributed()) is None:
        return
    groups = [None, dist.new_group()]
    for group in reversed(groups) if fault.hits(rank) else groups:
        dist.all_reduce(_zeros(dist, 1), group=group)


def unsent(fault: Fault, rank: int) -> None:
    """The rank after each of the fault's waits for what that does not send."""
    if (dist := _distributed()) is None:
        return
    sender = (rank - 1) % dist.get_world_size()
    if fault.hits(sender) and not fault.hits(rank):
        dist.recv(_zeros(dist, 1), src=sender)


def _distributed() -> Any:
    dist = sys.modules["torch"].distributed
    return dist if dist.is_available() and dist.is_initialized() else None


def _zeros(dist: Any, numel: int) -> Any:
    torch = sys.modules["torch"]
    on_cuda = "nccl" in dist.get_backend()
    device = torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")
    return torch.zeros(numel, device=device)
