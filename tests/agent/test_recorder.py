"""The flight recorder: what a real gloo job's says, and what an odd one's may."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from diagd.daemon.agent import recorder
from diagd.daemon.agent.entries import dtype_name, operation_name
from diagd.daemon.agent.recorder import NoRecorder

GLOO = Path(__file__).with_name("fixtures") / "gloo_flight_recorder.json"


def test_a_gloo_jobs_entries_are_understood() -> None:
    operations = recorder.parse(GLOO.read_bytes())
    assert [op.name for op in operations] == [
        "ALLREDUCE", "BROADCAST", "ALLGATHER", "ALLGATHER", "ALLREDUCE", "REDUCE", "ALLTOALL", "GATHER", "SCATTER",
        "BARRIER", "ALLREDUCE", "ALLGATHER", "ALLGATHER",
    ]  # fmt: skip
    first, bf16 = operations[0], operations[10]
    assert (first.group, first.seq, first.shapes, first.numel, first.dtype) == ("0", 1, ((4, 3),), 12, "float32")
    assert (first.source, first.retired, first.returned_s) == ("flight recorder", True, None)
    assert first.entered_s == pytest.approx(1795822471.833381)
    assert (bf16.group, bf16.seq, bf16.dtype) == ("1", 2, "bfloat16")


@pytest.mark.parametrize(
    ("spelling", "name", "peer"),
    [
        ("gloo:all_reduce", "ALLREDUCE", -1),
        ("nccl:_all_gather_base", "ALLGATHER", -1),
        ("nccl:all_gather_into_tensor_coalesced", "ALLGATHER_COALESCED", -1),
        ("gloo:all_gather_single", "ALLGATHER", -1),
        ("nccl:_reduce_scatter_base", "REDUCE_SCATTER", -1),
        ("nccl:reduce_scatter_tensor_coalesced", "REDUCE_SCATTER_COALESCED", -1),
        ("nccl:send 0->1", "SEND", 1),
        ("nccl:recv 0<-3", "RECV", 3),
        ("nccl:all_to_allv", "ALLTOALL", -1),
        ("nccl:all_reduce_barrier", "BARRIER", -1),
        ("nccl:coalesced", "COALESCED", -1),
        ("allreduce", "ALLREDUCE", -1),
        ("nccl:something_new", "OTHER", -1),
        ("", "OTHER", -1),
    ],
)
def test_every_spelling_has_one_name(spelling: str, name: str, peer: int) -> None:
    assert operation_name(spelling) == (name, peer)


def test_dtypes_have_torchs_names() -> None:
    assert [dtype_name(d) for d in ("Float", "BFloat16", "Long", "Byte", "Float8_e4m3fn", "", None)] == [
        "float32", "bfloat16", "int64", "uint8", "float8_e4m3fn", "", "",
    ]  # fmt: skip


def test_a_peer_is_a_place_in_its_group() -> None:
    entry = {"profiling_name": "nccl:send 0->1", "process_group": ["pp", ""], "is_p2p": True, "p2p_seq_id": 4}
    (operation,) = recorder.parse(json.dumps({"entries": [entry]}).encode(), {"pp": (2, 6)})
    assert (operation.peer, operation.seq, operation.p2p) == (6, 4, True)


def test_missing_fields_are_left_as_not_known() -> None:
    (operation,) = recorder.parse(b'{"entries": [{}]}')
    assert (operation.name, operation.group, operation.seq, operation.numel, operation.dtype) == (
        "OTHER",
        "",
        0,
        -1,
        "",
    )


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"entries": 3}', b"<html>"])
def test_what_is_no_recorders_json_is_said(text: bytes) -> None:
    with pytest.raises(NoRecorder):
        recorder.parse(text)


def serve(path: Path, answer: Callable[[socket.socket], object]) -> threading.Thread:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def run() -> None:
        connection, _ = server.accept()
        connection.recv(4096)
        answer(connection)
        connection.close()
        server.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_an_answer_in_pieces_is_put_together(tmp_path: Path) -> None:
    def answer(connection: socket.socket) -> None:
        for piece in (b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 14\r\n\r\n", b'{"entries', b'":[]}'):
            connection.sendall(piece)

    thread = serve(tmp_path / "s", answer)
    assert recorder.fetch(tmp_path / "s") == b'{"entries":[]}'
    thread.join()


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"garbage",
     b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"],
)  # fmt: skip
def test_a_bad_answer_is_no_recorder(tmp_path: Path, data: bytes) -> None:
    thread = serve(tmp_path / "s", lambda connection: connection.sendall(data))
    with pytest.raises(NoRecorder):
        recorder.fetch(tmp_path / "s")
    thread.join()


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    done = threading.Event()
    thread = serve(tmp_path / "s", lambda connection: done.wait())
    with pytest.raises(NoRecorder, match=r"no answer within 0.1 s"):
        recorder.fetch(tmp_path / "s", timeout_s=0.1)
    done.set()
    thread.join()


def test_no_server_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoRecorder, match="cannot be reached"):
        recorder.fetch(tmp_path / "none")
