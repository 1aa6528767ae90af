"""The flight recorder's entries as operations, whatever backend and torch version spelled them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

from diagd.daemon.agent import frames
from diagd.daemon.state.model import Frame, Operation
from diagd.probes.box.layout import Op

# From every spelling that backends and torch versions use (prefix and leading underscore off) to the names of reports.
_NAMES = {
    "all_reduce": Op.ALLREDUCE, "allreduce": Op.ALLREDUCE, "all_reduce_barrier": Op.BARRIER,
    "allreduce_sparse": Op.ALLREDUCE, "all_reduce_sparse": Op.ALLREDUCE,
    "allreduce_coalesced": Op.ALLREDUCE_COALESCED, "all_reduce_coalesced": Op.ALLREDUCE_COALESCED,
    "broadcast": Op.BROADCAST, "broadcast_oop": Op.BROADCAST,
    "all_gather": Op.ALLGATHER, "allgather": Op.ALLGATHER, "all_gather_base": Op.ALLGATHER,
    "allgather_base": Op.ALLGATHER, "all_gather_into_tensor": Op.ALLGATHER, "all_gather_single": Op.ALLGATHER,
    "all_gather_v": Op.ALLGATHER, "all_gather_object": Op.ALLGATHER,
    "all_gather_into_tensor_coalesced": Op.ALLGATHER_COALESCED,
    "allgather_into_tensor_coalesced": Op.ALLGATHER_COALESCED,
    "allgather_coalesced": Op.ALLGATHER_COALESCED, "all_gather_coalesced": Op.ALLGATHER_COALESCED,
    "reduce": Op.REDUCE, "reduce_oop": Op.REDUCE,
    "reduce_scatter": Op.REDUCE_SCATTER, "reduce_scatter_base": Op.REDUCE_SCATTER,
    "reduce_scatter_tensor": Op.REDUCE_SCATTER, "reduce_scatter_single": Op.REDUCE_SCATTER,
    "reduce_scatter_v": Op.REDUCE_SCATTER, "reduce_scatter_tensor_coalesced": Op.REDUCE_SCATTER_COALESCED,
    "reduce_scatter_coalesced": Op.REDUCE_SCATTER_COALESCED,
    "all_to_all": Op.ALLTOALL, "alltoall": Op.ALLTOALL, "all_to_all_single": Op.ALLTOALL, "all_to_allv": Op.ALLTOALL,
    "alltoall_base": Op.ALLTOALL, "all_to_all_base": Op.ALLTOALL, "all_to_all_v_single": Op.ALLTOALL,
    "gather": Op.GATHER, "scatter": Op.SCATTER, "barrier": Op.BARRIER, "monitored_barrier": Op.MONITORED_BARRIER,
    "send": Op.SEND, "recv": Op.RECV, "recv_any_source": Op.RECV, "recvanysource": Op.RECV, "coalesced": Op.COALESCED,
}  # fmt: skip
_SPELLING = re.compile(r"^(?:\w+:)?_?(?P<name>[A-Za-z_]+?)\s*(?:\d+\s*(?:->|<-)\s*(?P<peer>\d{1,9}))?$")
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
# Such an entry ends a batch: it has the state of all, and those before it the sizes (ProcessGroupNCCL, endCoalescing).
_ENDS_BATCH = frozenset({"COALESCED", "ALLGATHER_COALESCED", "REDUCE_SCATTER_COALESCED"})
_SIZED = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "REDUCE_SCATTER"})  # equal on all ranks
_MOST = (1 << 63) - 1
_P2P = frozenset({"SEND", "RECV"})
# These follow an operation by events of the device; gloo leaves its state at "scheduled" for ever.
_KEEPS_STATE = frozenset({"nccl", "ncclx", "rccl", "rcclx", "xccl", "hccl", "mccl"})

Members = Mapping[str, tuple[int, ...]]  # global ranks of each group, by its name


@dataclass(frozen=True, slots=True)
class _Form:
    """What is the same in all calls of one operation with the same arguments."""

    name: str
    peer: int
    shapes: tuple[tuple[int, ...], ...]
    numel: int
    dtype: str
    p2p: bool


@cache
def operation_name(spelling: str) -> tuple[str, int]:
    """(name, peer) of a recorder's profiling name, such as "nccl:recv 0<-1"; peer -1 where it names none."""
    matched = _SPELLING.match(spelling.strip())
    if matched is None:
        return Op.OTHER.name, -1
    op = _NAMES.get(matched["name"].lower(), Op.OTHER)
    return op.name, int(matched["peer"] or -1)


def dtype_name(spelling: object) -> str:
    """float32 for "Float"; a name that is not known stays, in lower case."""
    text = str(spelling or "").removeprefix("torch.")
    return _DTYPES.get(text, text.lower())


def operations(entries: Iterable[Mapping[str, Any]], members: Members) -> tuple[Operation, ...]:
    """The entries as operations, oldest first; what is not understood of one is left at "not known".

    A batch of collectives (several entries of one place in the group's order, and one that ends them) becomes one
    operation. The members of a batch of sends and receives stay apart, and end when their batch does: of themselves
    they are never marked as finished.
    """
    reader = _Reader(members)
    kept = list(entries)  # while they are read, so that no two lists of frames have the same identity
    for entry in sorted(kept, key=lambda e: whole(e.get("record_id"))):
        reader.take(entry)
    return tuple(op for op in reader.found if op is not None)


class _Reader:
    """Takes entries in their order; what many of them share is worked out once."""

    def __init__(self, members: Members) -> None:
        self.found: list[Operation | None] = []
        self._members = members
        self._forms: dict[tuple[str, ...], _Form] = {}
        self._sites: dict[tuple[object, ...], Frame] = {}
        self._seen_stacks: dict[int, Frame | None] = {}  # by identity: entries of one call share their frames' list
        self._batches: dict[tuple[str, bool], tuple[int, list[int]]] = {}  # by group: place, and where in `found`

    def take(self, entry: Mapping[str, Any]) -> None:
        form, group = self._form(entry), first(entry.get("process_group"))
        p2p = bool(entry.get("is_p2p", form.p2p))
        seq = whole(entry.get("p2p_seq_id" if p2p else "collective_seq_id") or entry.get("seq_id"))  # torch < 2.4
        completed_ns = whole(entry.get("time_discovered_completed_ns"))
        members = self._members.get(group, ())
        self.found.append(
            Operation(
                name=form.name, group=group, seq=seq, source="flight recorder", shapes=form.shapes,
                tensors=len(form.shapes), numel=form.numel, dtype=form.dtype,
                peer=members[form.peer] if 0 <= form.peer < len(members) else form.peer,
                site=self._site(entry), entered_s=whole(entry.get("time_created_ns")) / 1e9,
                timeout_s=whole(entry.get("timeout_ms")) / 1e3, returned_s=completed_ns / 1e9 if completed_ns else None,
                retired=bool(completed_ns) or _finished(entry),
            )
        )  # fmt: skip
        if seq > 0:
            self._batch(group, p2p, seq)

    def _batch(self, group: str, p2p: bool, seq: int) -> None:
        """Note the newest operation's batch, and close it where this operation ends one."""
        at = len(self.found) - 1
        place, parts = self._batches.get((group, p2p), (0, []))
        if place != seq:
            place, parts = seq, []
        self._batches[group, p2p] = (place, [*parts, at] if parts else [at])
        end = self.found[at]
        if end is None or end.name not in _ENDS_BATCH or not (parts or p2p):
            return
        if p2p:
            self.found[at] = None
            for part in parts:
                self._finish(part, end)
        else:
            self.found[at] = _merged([op for part in parts if (op := self.found[part]) is not None], end)
            for part in parts:
                self.found[part] = None

    def _finish(self, part: int, end: Operation) -> None:
        op = self.found[part]
        if op is not None:
            self.found[part] = replace(op, retired=end.retired, returned_s=end.returned_s)

    def _form(self, entry: Mapping[str, Any]) -> _Form:
        spelling = str(entry.get("profiling_name") or "")
        inputs, outputs = entry.get("input_sizes"), entry.get("output_sizes")
        dtypes = entry.get("input_dtypes") or entry.get("output_dtypes")
        key = (spelling, repr(inputs), repr(outputs), repr(dtypes), first(entry.get("process_group")))
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._made(spelling, shapes(inputs), shapes(outputs), dtypes, key[-1])
        return form

    def _made(
        self, spelling: str, inputs: tuple[tuple[int, ...], ...], outputs: tuple[tuple[int, ...], ...], dtypes: object,
        group: str,
    ) -> _Form:  # fmt: skip
        name, peer = operation_name(spelling)
        shapes = inputs or outputs
        if inputs and _contradicted(name, inputs, outputs, len(self._members.get(group, ()))):
            shapes = (*inputs, *outputs)
        p2p = name in _P2P
        numel = sum(map(prod, shapes)) if shapes else -1
        dtype = dtype_name(first(dtypes) if isinstance(dtypes, list | tuple) else dtypes)
        return _Form(name, peer if p2p else -1, shapes, numel, dtype, p2p)

    def _site(self, entry: Mapping[str, Any]) -> Frame | None:
        """The user's innermost line; None where the entries hold no frames (JSON)."""
        found = entry.get("frames")
        if not found:
            return None
        if id(found) not in self._seen_stacks:
            self._seen_stacks[id(found)] = self._innermost(found)
        return self._seen_stacks[id(found)]

    def _innermost(self, found: object) -> Frame | None:
        for frame in found if isinstance(found, list | tuple) else ():
            if isinstance(frame, dict) and _is_user(str(frame.get("filename") or "")):
                name, line = str(frame.get("name") or "?"), whole(frame.get("line"))
                file = str(frame["filename"])
                return self._sites.setdefault((name, file, line), Frame(name, file, line))
        return None


_is_user = cache(frames.is_user)


def _finished(entry: Mapping[str, Any]) -> bool | None:
    """Whether the operation has ended; a device's backend retires also what it has given up. None: not known."""
    if entry.get("state") == "completed":
        return True
    if entry.get("state") is None and entry.get("retired") is None:
        return None
    backend = str(entry.get("profiling_name") or "").partition(":")[0]
    return bool(entry.get("retired")) and backend not in _KEEPS_STATE


def _merged(parts: Sequence[Operation], end: Operation) -> Operation:
    """A batch of collectives as one: the end's name and state, the sizes of all."""
    sized = all(op.name in _SIZED and op.numel >= 0 for op in parts)
    return replace(
        end,
        shapes=tuple(shape for op in parts for shape in op.shapes) if sized else (),
        tensors=sum(op.tensors for op in parts),
        numel=sum(op.numel for op in parts) if sized else -1,
        dtype=parts[0].dtype if len({op.dtype for op in parts}) == 1 else "",
        entered_s=end.entered_s or parts[0].entered_s,
        site=end.site or parts[0].site,
    )


def _contradicted(
    name: str, inputs: tuple[tuple[int, ...], ...], outputs: tuple[tuple[int, ...], ...], size: int
) -> bool:  # fmt: skip
    """Whether the outputs are not what these inputs must give; such a call meets no sound one."""
    if not outputs:
        return False
    taken, given = sum(map(prod, inputs)), sum(map(prod, outputs))
    if name == Op.ALLREDUCE.name:
        return taken != given
    if size < 2:
        return False
    if name == Op.ALLGATHER.name:
        return given != taken * size
    return name == Op.REDUCE_SCATTER.name and taken != given * size


def shapes(sizes: object) -> tuple[tuple[int, ...], ...]:
    """An entry's sizes; none where it has none."""
    if not isinstance(sizes, list | tuple):
        return ()
    return tuple(tuple(whole(n) for n in size) for size in sizes if isinstance(size, list | tuple))


def first(value: object) -> str:
    """The first of several as text; empty where there is none."""
    return str(value[0]) if isinstance(value, list | tuple) and value else ""


def whole(value: object) -> int:
    """A whole number of at most 64 bits, also from text; 0 where it is none."""
    if type(value) is int:
        number = value
    else:
        try:
            number = int(value or 0)  # type: ignore[call-overload]
        except (TypeError, ValueError, OverflowError):
            return 0
    return number if -_MOST <= number <= _MOST else 0
