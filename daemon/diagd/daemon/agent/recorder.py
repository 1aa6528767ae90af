"""Fetch torch's flight recorder from a rank: its worker server answers on a unix socket without the rank's GIL."""

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

from diagd.daemon.state.model import Operation
from diagd.probes.box.layout import Op

TIMEOUT_S = 2.0
_REQUEST = b"POST /handler/fr_trace_json HTTP/1.1\r\nHost: rank\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_MAX_BYTES = 64 * 1024 * 1024

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
    "alltoall_base": Op.ALLTOALL, "all_to_all_base": Op.ALLTOALL,
    "gather": Op.GATHER, "scatter": Op.SCATTER, "barrier": Op.BARRIER, "monitored_barrier": Op.MONITORED_BARRIER,
    "send": Op.SEND, "recv": Op.RECV, "recv_any_source": Op.RECV, "recvanysource": Op.RECV, "coalesced": Op.COALESCED,
}  # fmt: skip
_SPELLING = re.compile(r"^(?:\w+:)?_?(?P<name>[A-Za-z_]+?)\s*(?:\d+\s*(?:->|<-)\s*(?P<peer>\d+))?$")
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip


class NoRecorder(Exception):
    """The rank has no flight recorder to read, or does not answer; the message says why."""


def fetch(path: Path, timeout_s: float = TIMEOUT_S) -> bytes:
    """The recorder's JSON as the rank's worker server gives it.

    Raises:
        NoRecorder: There is no server, or it gives no whole answer within `timeout_s` (a stopped rank).
    """
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(_REQUEST)
            return _answer(connection, deadline)
        except TimeoutError:
            raise NoRecorder(f"the worker server gave no answer within {timeout_s:g} s") from None
        except OSError as exc:
            raise NoRecorder(f"the worker server cannot be reached: {exc.strerror or exc}") from exc


def _answer(connection: socket.socket, deadline: float) -> bytes:
    """The body of the HTTP answer."""
    data, body_at, length = bytearray(), -1, -1
    while body_at < 0 or len(data) < body_at + length:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(1 << 20)
        if not part or len(data) > _MAX_BYTES:
            break
        data += part
        if body_at < 0 and (end := data.find(b"\r\n\r\n")) >= 0:
            body_at, length = end + 4, _content_length(bytes(data[:end]))
    if body_at < 0 or not data.startswith(b"HTTP/1.1 200") or len(data) < body_at + length:
        raise NoRecorder(f"the worker server answered {bytes(data[:60])!r}")
    return bytes(data[body_at:])


def _content_length(head: bytes) -> int:
    found = re.search(rb"content-length:\s*(\d+)", head, re.IGNORECASE)
    if found is None:
        raise NoRecorder("the worker server's answer does not say how long it is")
    return int(found[1])


def parse(data: bytes, members: dict[str, tuple[int, ...]] | None = None) -> tuple[Operation, ...]:
    """The recorder's entries, oldest first; what is not understood of one is left at "not known".

    Args:
        members: Global ranks of each group by its name, to turn peers from places in a group into global ranks.

    Raises:
        NoRecorder: It is no flight recorder's JSON.
    """
    try:
        found = json.loads(data)
        entries = found["entries"] if "pg_status" not in found else found.get("entries", [])  # left out where none are
    except (ValueError, KeyError, TypeError) as exc:
        raise NoRecorder("what the worker server sent is no flight recorder's JSON") from exc
    if not isinstance(entries, list):
        raise NoRecorder("the flight recorder's entries are no list")
    known = [entry for entry in entries if isinstance(entry, dict)]
    return tuple(_operation(entry, members or {}) for entry in sorted(known, key=lambda e: _int(e.get("record_id"))))


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


def _operation(entry: dict[str, Any], members: dict[str, tuple[int, ...]]) -> Operation:
    name, peer = operation_name(str(entry.get("profiling_name") or ""))
    group = _first(entry.get("process_group"))
    shapes = tuple(
        tuple(_int(n) for n in size)
        for size in entry.get("input_sizes") or entry.get("output_sizes") or ()
        if isinstance(size, list | tuple)
    )
    dtypes = entry.get("input_dtypes") or entry.get("output_dtypes") or [""]
    p2p = name in (Op.SEND.name, Op.RECV.name)
    retired = entry.get("retired")
    completed_ns = _int(entry.get("time_discovered_completed_ns"))
    return Operation(
        name=name,
        group=group,
        seq=_int(entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id")),
        source="flight recorder",
        shapes=shapes,
        tensors=len(shapes),
        numel=sum(_product(shape) for shape in shapes) if shapes else -1,
        dtype=dtype_name(_first(dtypes)),
        peer=_global(peer, members.get(group, ())) if p2p else -1,
        entered_s=_int(entry.get("time_created_ns")) / 1e9,
        timeout_s=_int(entry.get("timeout_ms")) / 1e3,
        returned_s=completed_ns / 1e9 if completed_ns else None,
        retired=bool(retired) if retired is not None else entry.get("state") == "completed",
    )


def _first(value: object) -> str:
    return str(value[0]) if isinstance(value, list | tuple) and value else ""


def _global(place: int, ranks: tuple[int, ...]) -> int:
    return ranks[place] if 0 <= place < len(ranks) else place


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _int(value: object) -> int:
    try:
        return int(value or 0)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return 0
