"""Turn what a box holds into the model's values: operations, groups, the ending; times become Unix seconds."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from diagd.daemon.agent import frames
from diagd.daemon.state.model import Ending, Frame, Group, Operation
from diagd.probes.box import layout
from diagd.probes.box.layout import Dtype, Flag, Live, Op, Phase, Record, Reduce
from diagd.probes.box.reader import BoxReader

_SEVERAL = 255  # Record.ndim: more than one tensor, dims hold the first's


def time_s(box: BoxReader, slot: Live) -> float:
    """A live time; 0 where it was never set."""
    mono_ns = box.live(slot)
    return box.wall_s(mono_ns) if mono_ns > 0 else 0.0


def phase(box: BoxReader) -> str:
    """What the rank is doing, in the schema's words.

    A step that is over leaves it in its forward pass, as far as the box can tell. Where the beginnings of those are
    told, and none has come since that step, it is in neither.
    """
    since_step = 0 < box.live(Live.FORWARD_NS) < box.live(Live.STEP_NS)
    if since_step and box.live(Live.PHASE) == Phase.FORWARD:
        return "other"
    return _name(Phase, box.live(Live.PHASE)).lower()


def groups(box: BoxReader) -> tuple[Group, ...]:
    """The rank's process groups, by their index in the box."""
    text = box.text(layout.GROUPS)
    entries = text.get("groups") if isinstance(text, dict) else None
    return tuple(_group(box, entry) for entry in entries or () if isinstance(entry, dict))


def group_names(box: BoxReader) -> dict[int, str]:
    """Name of each group by the index that records hold."""
    text = box.text(layout.GROUPS)
    entries = text.get("groups") if isinstance(text, dict) else None
    return {
        int(e["index"]): str(e["name"]) for e in entries or () if isinstance(e, dict) and "index" in e and "name" in e
    }


def _group(box: BoxReader, entry: dict[str, Any]) -> Group:
    enqueued, completed, _ = box.counters(_int(entry.get("index"), -1))
    created_ns = _int(entry.get("created_ns"))
    return Group(
        name=str(entry.get("name", "")),
        ranks=parse_ranks(entry.get("ranks")),
        description=str(entry.get("description", "")),
        enqueued=enqueued,
        completed=completed,
        created_s=box.wall_s(created_ns) if created_ns > 0 else 0.0,
    )


def parse_ranks(value: object) -> tuple[int, ...]:
    """Global ranks, from a list or from text such as "0-3,8"."""
    if isinstance(value, list):
        return tuple(_int(rank, -1) for rank in value)
    found: list[int] = []
    for part in str(value or "").split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdecimal() and (last.isdecimal() or not dash):
            found += range(int(first), int(last or first) + 1)
    return tuple(found)


def operations(box: BoxReader, records: Sequence[Record]) -> tuple[Operation, ...]:
    """The model's operations for a box's records."""
    names = group_names(box)
    threads = dict(box.threads()) if len(records) else {}
    threads.pop(box.live(Live.MAIN_THREAD), None)
    return tuple(_operation(box, record, names, threads) for record in records)


def _operation(box: BoxReader, record: Record, names: dict[int, str], threads: dict[int, str]) -> Operation:
    name = _name(Op, record.op)
    p2p = record.op in layout.POINT_TO_POINT
    failed = bool(record.flags & Flag.FAILED)
    detail = box.string(record.detail)
    has_shape = record.tensors > 0 and (record.ndim or record.numel == 1)
    return Operation(
        name=name,
        group=names.get(record.group, ""),
        seq=record.seq,
        shapes=(record.dims,) if has_shape else (),
        tensors=record.tensors,
        numel=record.numel,
        dtype=_name(Dtype, record.dtype).lower() if record.dtype else "",
        reduce_op=_name(Reduce, record.reduce) if record.reduce else "",
        root=-1 if p2p else record.peer,
        peer=-1 if not p2p or record.flags & Flag.ANY_SOURCE else record.peer,
        tag=record.tag,
        site=site(box.string(record.site)),
        thread=record.thread,
        thread_name=threads.get(record.thread, ""),
        is_async=bool(record.flags & Flag.ASYNC),
        blocking=record.blocking,
        entered_s=box.wall_s(record.entered_ns),
        returned_s=box.wall_s(record.returned_ns) if record.returned_ns > 0 else None,
        held_s=_held_s(record),
        failed=detail if failed else "",
        detail="" if failed else detail,
    )


def _held_s(record: Record) -> float:
    if not record.returned_ns:
        return 0.0
    in_call = (record.issued_ns or record.returned_ns) - record.entered_ns
    in_wait = record.returned_ns - record.wait_ns if record.issued_ns and record.wait_ns else 0
    return max(in_call + in_wait, 0) / 1e9


def site(text: str) -> Frame | None:
    """A call site as the rank notes it, `file<tab>line<tab>function`: always the user's own line."""
    parts = text.split("\t")
    if len(parts) != 3 or not parts[0]:
        return None
    return Frame(parts[2], parts[0], _int(parts[1]), user=True)


def waits_since_s(box: BoxReader, records: Sequence[Record]) -> float:
    """Since when the main thread, or else any, is in an operation that blocks it; 0 in none."""
    blocking = [record for record in records if record.blocking]
    of_main = [record for record in blocking if record.thread == box.live(Live.MAIN_THREAD)]
    begun = [record.wait_ns or record.entered_ns for record in of_main or blocking]
    return box.wall_s(min(begun)) if begun else 0.0


def endings(box: BoxReader) -> tuple[Ending, ...]:
    """What the process noted about its end, the deepest reason first."""
    text = box.text(layout.ENDING)
    entries = [entry for entry in (text if isinstance(text, list) else [text]) if isinstance(entry, dict)]
    threads = [entry["thread_ended"] for entry in entries if isinstance(entry.get("thread_ended"), dict)]
    return tuple(_ending(box, entry) for entry in (*entries, *threads))


def ending(box: BoxReader) -> Ending | None:
    """How the user's code ended: an exception says more than the exit or shutdown that follows it."""
    found = [one for one in endings(box) if one.what != "thread"]
    return next((e for e in found if e.what == "exception"), found[0] if found else None)


def thread_ended(box: BoxReader) -> Ending | None:
    """A thread of the process that ended in an exception, as the last one did."""
    return next((one for one in endings(box) if one.what == "thread"), None)


def _ending(box: BoxReader, entry: dict[str, Any]) -> Ending:
    at_ns, code = _int(entry.get("at_ns")), entry.get("code")
    return Ending(
        what=str(entry.get("what", "")),
        type=str(entry.get("type") or ""),
        message=str(entry.get("message") or ""),
        code=code if isinstance(code, int) else None,
        frames=tuple(
            Frame(str(f[0]), str(f[1]), _int(f[2]), bool(f[3]) if len(f) > 3 else frames.is_user(str(f[1])))
            for f in entry.get("frames") or ()
            if isinstance(f, list) and len(f) >= 3
        ),
        at_s=box.wall_s(at_ns) if at_ns > 0 else 0.0,
        thread=str(entry.get("thread") or ""),
    )


def _name(kind: type[IntEnum], value: int) -> str:
    try:
        return kind(value).name
    except ValueError:
        return "OTHER"


def _int(value: object, otherwise: int = 0) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return otherwise
