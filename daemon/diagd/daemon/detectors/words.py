"""How findings speak of ranks, operations, times and places."""

from collections.abc import Iterable

from diagd.daemon.detectors.ledger import UNNAMED
from diagd.daemon.ranks import rank_ranges
from diagd.daemon.state.model import Frame, Operation

UNNAMED_TEXT = "operation"


def ranks_text(ranks: Iterable[int]) -> str:
    """Name ranks briefly: "rank 3", "ranks 0-2,5"; "no rank" for none."""
    return rank_ranges(ranks, named=True)


def verb(ranks: Iterable[int], one: str, many: str) -> str:
    """The form of a verb that fits the number of ranks."""
    return one if len(set(ranks)) == 1 else many


def wait_text(ranks: Iterable[int]) -> str:
    """ "rank 3 waits", "ranks 0-2 wait"."""
    known = list(ranks)
    return f"{ranks_text(known)} {verb(known, 'waits', 'wait')}"


def seconds_text(seconds: float) -> str:
    """A duration as a person says it: "4 s", "2 min 5 s", "3 h 10 min"."""
    whole = int(max(seconds, 0))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def op_text(op: Operation, with_size: bool = False) -> str:
    """Name an operation: "ALLREDUCE #120 of group 0", "RECV from rank 1", "store key 'plan/3'"."""
    if op.name == "STORE_JOIN":
        return f"TCPStore({op.detail}) for {op.numel} workers"
    if op.name.startswith("STORE_"):
        return f"store key {op.detail!r}" if op.detail else "the store"
    if op.name in ("SEND", "RECV"):
        partner = "any rank" if op.peer < 0 else f"rank {op.peer}"
        return f"{op.name} {'to' if op.name == 'SEND' else 'from'} {partner}"
    if op.name == "INIT":
        return "init_process_group"
    if op.name == "NEW_GROUP":
        return "new_group"
    size = f" {size_text(op)}" if with_size and size_text(op) else ""
    number = f" #{op.seq}" if op.seq > 0 else ""
    name = UNNAMED_TEXT if op.name == UNNAMED else op.name
    return f"{name}{size}{number}" + (f" of group {op.group}" if op.group else "")


def size_text(op: Operation) -> str:
    """Type and shape: "float32[64,128]"; "float32, 3 tensors, 900 elements" for several; empty where not known."""
    if op.tensors > 1 and op.numel >= 0:
        return f"{op.dtype}, {op.tensors} tensors, {op.numel} elements"
    if op.shapes:
        return f"{op.dtype}[{','.join(map(str, op.shapes[0]))}]"
    return f"{op.dtype}, {op.numel} elements".removeprefix(", ") if op.numel >= 0 else op.dtype


def place_text(frame: Frame | None) -> str:
    """A frame as "function (file.py:12)"; empty for none."""
    if frame is None:
        return ""
    return f"{frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"


def shortened(text: str, limit: int = 300) -> str:
    """The text cut to `limit` characters at a word, with an ellipsis."""
    if len(text) <= limit:
        return text
    return text[: limit - 1].rsplit(" ", 1)[0] + "…"
