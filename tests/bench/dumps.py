"""Flight-recorder dumps of a large job, as NCCL's watchdog leaves them: written, not recorded."""

import pickle
from pathlib import Path
from typing import Any

MISSING = 517  # by this part of the world: the rank that never entered the last operation
BEGUN_NS = 1_700_000_000_000_000_000
OLD = 1_000_000  # operations before those that the ring still holds
TENSOR_GROUP = 8
TORCH = "/env/lib/python3.12/site-packages/torch"
STACK = (
    ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 2810),
    ("wrapper", f"{TORCH}/distributed/c10d_logger.py", 81),
    ("forward", f"{TORCH}/nn/modules/module.py", 1747),
    ("attention", "/job/model.py", 214),
    ("block", "/job/model.py", 301),
    ("train_step", "/job/train.py", 88),
    ("main", "/job/train.py", 140),
)


def write(folder: Path, ranks: int, entries: int) -> int:
    """One file for each rank; the rank that is at fault.

    Each step has the operations of a tensor-parallel group of 8, those of the data-parallel group across, and one of
    all ranks. In the last, all but one rank wait.
    """
    folder.mkdir(parents=True)
    guilty = MISSING % ranks
    stacks = [[{"name": n, "filename": f, "line": line + place} for n, f, line in STACK] for place in range(24)]
    for rank in range(ranks):
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(_dump(rank, ranks, entries, stacks, rank == guilty), 2))
    return guilty


def _dump(rank: int, ranks: int, entries: int, stacks: list[Any], guilty: bool) -> dict[str, Any]:
    tensor = list(range(rank // TENSOR_GROUP * TENSOR_GROUP, (rank // TENSOR_GROUP + 1) * TENSOR_GROUP))
    data = list(range(rank % TENSOR_GROUP, ranks, TENSOR_GROUP))
    groups = {
        "0": ("default_pg", list(range(ranks))),
        f"{1 + rank // TENSOR_GROUP}": ("tp", tensor),
        f"{1000 + rank % TENSOR_GROUP}": ("dp", data),
    }
    names = list(groups)
    counts = dict.fromkeys(names, OLD)
    found = []
    for place in range(entries):
        slot = place % 20
        name = names[0] if place == entries - 1 or slot == 19 else names[2] if slot > 13 else names[1]
        counts[name] += 1
        found.append(_entry(place, name, groups[name][0], counts[name], slot, len(groups[name][1]), stacks))
    found[-1].update(state="started", time_discovered_completed_ns=None, retired=False)
    return {
        "version": "2.10",
        "comm_lib_version": "2.27.3",
        "pg_config": {n: {"name": n, "desc": d, "ranks": str(members)} for n, (d, members) in groups.items()},
        "pg_status": {},
        "entries": found[:-1] if guilty else found,
    }


def _entry(place: int, group: str, kind: str, seq: int, slot: int, size: int, stacks: list[Any]) -> dict[str, Any]:
    call, taken, given = {
        "tp": ("all_reduce", [4, 2048, 1024], [4, 2048, 1024]),
        "dp": ("_reduce_scatter_base", [size, 65536 + slot], [65536 + slot]),
    }.get(kind, ("all_reduce", [1], [1]))
    at_ns = BEGUN_NS + place * 1_000_000
    return {
        "frames": stacks[slot], "record_id": OLD * 20 + place, "pg_id": 0, "process_group": (group, kind),
        "thread_name": "pt_main_thread", "thread_id": "140452454001536", "collective_seq_id": seq, "p2p_seq_id": 0,
        "op_id": seq, "profiling_name": f"nccl:{call}", "time_created_ns": at_ns, "input_sizes": [taken],
        "input_dtypes": ["BFloat16"], "output_sizes": [given], "output_dtypes": ["BFloat16"], "state": "completed",
        "time_discovered_started_ns": at_ns + 1000, "time_discovered_completed_ns": at_ns + 2000, "retired": True,
        "timeout_ms": 600000, "is_p2p": False,
    }  # fmt: skip
