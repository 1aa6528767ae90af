"""A job's ledger as a document: what each tensor is, and digests of what the ranks held after which steps."""

from typing import Any

from diagd.daemon.ranks import rank_ranges
from diagd.daemon.state.job import JobState

SCHEMA = "diagd.ledger/1"
_WORD = 1 << 64
_KEPT = ("parameter", "buffer", "state")  # what a checkpoint holds too


def ledger_document(state: JobState) -> dict[str, Any]:
    """In JSON's types; digests as 16 hexadecimal digits, each with the ranks that hold it ("0-3,7")."""
    tensors = []
    for index, entry in enumerate(state.tensors.entries):
        info = entry.infos[min(entry.infos)] if entry.infos else None
        if info is None or entry.kind not in _KEPT:
            continue
        tensors.append(
            {
                "name": entry.name,
                "kind": entry.kind,
                "dtype": info.dtype,
                "shape": list(info.shape),
                "placement": info.placement,
                "digests": {str(step): _by_digest(told) for step, told in state.tensors.samples(index).items()},
            }
        )
    return {"schema": SCHEMA, "job": state.job_id, "world_size": state.world_size, "tensors": tensors}


def _by_digest(told: dict[int, int]) -> dict[str, str]:
    ranks: dict[int, list[int]] = {}
    for rank, digest in told.items():
        ranks.setdefault(digest % _WORD, []).append(rank)
    return {f"{digest:016x}": rank_ranges(having) for digest, having in ranks.items()}
