"""A real job of two ranks that does a bit of everything: what each rank's box tells of it."""

import os
import socket
import subprocess
from pathlib import Path

import pytest
from tests.probes.jobs import SCRIPTS, Seen, boxes, exits, line_of, run

from diagd.probes.box.layout import Dtype, Flag, Op, Phase, Record, Reduce

SCRIPT = SCRIPTS / "everything.py"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("run")
    return folder, run(SCRIPT, folder=folder, ranks=2)


@pytest.fixture(scope="module")
def seen(job: tuple[Path, subprocess.CompletedProcess[str]]) -> list[Seen]:
    found = boxes(job[0])
    assert [box.identity["rank"] for box in found] == [0, 1], job[1].stderr
    return found


def at(box: Seen, mark: str, op: Op) -> Record:
    """The record of the line with that mark; it must be the only one of that operation there."""
    place = line_of(SCRIPT, mark)
    (record,) = [record for record in box.named(op) if box.site(record)[:2] == ("everything.py", place)]
    return record


def test_the_script_runs_as_without_diagd(job: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, process = job
    assert process.returncode == 1  # torchrun's, for rank 1's 3
    assert len({line for line in process.stdout.splitlines() if line.startswith("loss")}) == 1
    assert "diagd" not in process.stdout
    assert "Server" not in process.stderr


def test_each_rank_says_who_it_is(seen: list[Seen]) -> None:
    for rank, box in enumerate(seen):
        identity = box.identity
        assert (identity["job"], identity["rank"], identity["local_rank"]) == ("job", rank, rank)
        assert (identity["world_size"], identity["backend"], identity["attempt"]) == (2, "gloo", 0)
        assert (identity["host"], identity["store"]["type"]) == (socket.gethostname(), "TCPStore")
        assert "everything.py" in " ".join(identity["command"])
        assert identity["notes"] == []
        assert box.live["IS_RANK"] == 1
        assert box.live["PROBE_ERRORS"] == 0


def test_launchers_and_data_workers_are_no_ranks(seen: list[Seen]) -> None:
    assert len(seen) == 2


def test_groups_are_named_with_their_members_and_mesh(seen: list[Seen]) -> None:
    for box in seen:
        by_description = {group["description"]: group for group in box.groups}
        assert by_description["default_pg"]["ranks"] == [0, 1]
        assert by_description["the pair"]["ranks"] == [0, 1]
        assert by_description["the pair"]["destroyed_ns"] > by_description["the pair"]["created_ns"]
        assert by_description["mesh_pp"]["mesh"] == "pp"
        assert [group["index"] for group in box.groups] == list(range(len(box.groups)))
        assert box.detail(at(box, "new group", Op.NEW_GROUP)) == "the pair ranks 0,1"
        assert box.detail(at(box, "made by its members alone", Op.NEW_GROUP)) == "own ranks 0,1"


def test_a_collective_tells_all_about_itself(seen: list[Seen]) -> None:
    for box in seen:
        record = at(box, "maximum", Op.ALLREDUCE)
        assert (record.seq, record.group, record.dims, record.numel, record.tensors) == (1, 0, (3, 4), 12, 1)
        assert (record.dtype, record.reduce, record.flags) == (Dtype.FLOAT32, Reduce.MAX, 0)
        assert 0 < record.entered_ns <= record.issued_ns <= record.wait_ns <= record.returned_ns
        assert box.site(record)[2] == "communicate"


def test_the_same_operation_has_the_same_number_on_all_ranks(seen: list[Seen]) -> None:
    collectives = [
        [(record.group, record.seq, record.op) for record in box.records if record.seq and record.group >= 0]
        for box in seen
    ]
    assert collectives[0] == collectives[1]
    assert len(collectives[0]) > 8


def test_roots_and_partners_are_global_ranks(seen: list[Seen]) -> None:
    assert {at(box, "from 1", Op.BROADCAST).peer for box in seen} == {1}
    assert {at(box, "reduce", Op.REDUCE).peer for box in seen} == {1}
    assert {at(box, "scatter", Op.SCATTER).peer for box in seen} == {0}
    sent, received = at(seen[0], "send", Op.SEND), at(seen[1], "receive", Op.RECV)
    assert (sent.peer, sent.tag, sent.dims, sent.seq) == (1, 7, (5,), 0)
    assert (received.peer, received.tag, received.dims) == (0, 7, (5,))


def test_batched_operations_are_seen_one_by_one(seen: list[Seen]) -> None:
    for rank, box in enumerate(seen):
        records = [at(box, "batch", op) for op in (Op.SEND, Op.RECV)]
        assert [record.peer for record in records] == [1 - rank] * 2
        assert all(record.returned_ns for record in records)


def test_a_receive_from_anyone_has_no_partner(seen: list[Seen]) -> None:
    record = at(seen[0], "any source", Op.RECV)
    assert (record.peer, record.flags & Flag.ANY_SOURCE) == (-1, Flag.ANY_SOURCE)


def test_an_asynchronous_operation_returns_when_it_was_waited_for(seen: list[Seen]) -> None:
    for box in seen:
        record = at(box, "async", Op.ALLREDUCE)
        assert (record.dtype, record.flags) == (Dtype.FLOAT64, Flag.ASYNC)
        assert record.issued_ns <= record.wait_ns <= record.returned_ns
        forgotten = at(box, "never waited for", Op.ALLREDUCE)
        assert (forgotten.wait_ns, forgotten.returned_ns, forgotten.blocking) == (0, 0, False)


def test_an_operation_in_a_backward_pass_has_the_line_that_began_it(seen: list[Seen]) -> None:
    for box in seen:
        record = at(box, "hook", Op.ALLREDUCE)
        assert record.flags == Flag.IN_BACKWARD
        assert record.dims == (3,)


def test_object_collectives_are_seen_as_what_they_are_made_of(seen: list[Seen]) -> None:
    for box in seen:
        place = line_of(SCRIPT, "object")
        records = [record for record in box.named(Op.ALLGATHER) if box.site(record)[1] == place]
        assert [record.dtype for record in records] == [Dtype.INT64, Dtype.UINT8]


def test_barriers_and_stores_are_seen_with_their_lines(seen: list[Seen]) -> None:
    for box in seen:
        assert at(box, "monitored", Op.MONITORED_BARRIER).returned_ns
        assert at(box, "barrier", Op.BARRIER).returned_ns
        assert at(box, "init", Op.INIT).returned_ns
        assert "timeout" in box.detail(at(box, "timed out", Op.STORE_WAIT))
    assert seen[0].detail(at(seen[0], "set", Op.STORE_SET)) == "ready"
    assert seen[1].detail(at(seen[1], "get", Op.STORE_GET)) == "ready"


def test_the_sends_of_a_monitored_barrier_are_not_counted_as_collectives(seen: list[Seen]) -> None:
    assert len({at(box, "barrier", Op.BARRIER).seq for box in seen}) == 1
    assert {at(box, "monitored", Op.MONITORED_BARRIER).seq for box in seen} == {0}


def test_a_store_of_the_scripts_own_is_seen_and_torchs_own_are_not(seen: list[Seen]) -> None:
    for box in seen:
        (made,) = box.named(Op.STORE_JOIN)
        assert made == at(box, "own store", Op.STORE_JOIN)
        assert (made.numel, box.detail(made)[:10]) == (2, "127.0.0.1:")
        assert made.returned_ns


def test_what_raised_is_marked_as_failed(seen: list[Seen]) -> None:
    for box in seen:
        failed = [record for record in box.records if record.flags & Flag.FAILED]
        assert [Op(record.op) for record in failed][-1] == Op.STORE_WAIT
        assert all(record.returned_ns for record in failed)


def test_steps_and_passes_are_counted(seen: list[Seen]) -> None:
    for box in seen:
        assert (box.live["OPTIMIZER_STEPS"], box.live["BACKWARDS"]) == (5, 6)
        assert box.live["STEP"] == 6  # one backward pass came before there was any optimizer
        assert box.live["STEP_NS"] > 0
        assert box.live["PHASE"] == Phase.OTHER  # the data has ended


def test_the_heart_counts_what_the_reducer_issues_from_below(seen: list[Seen]) -> None:
    for box in seen:
        enqueued, _, updated = box.reader.counters(0)
        assert enqueued >= max(record.seq for record in box.records if record.group == 0)
        assert updated <= box.live["HEARTBEAT_NS"] + 10**9


def test_the_end_is_told_with_the_users_line(seen: list[Seen]) -> None:
    ending = seen[1].ending
    assert (ending["what"], ending["code"]) == ("exit", 3)
    function, file, line, user = ending["frames"][0]
    assert (function, Path(file).name, line, user) == ("main", "everything.py", line_of(SCRIPT, "exit"), True)
    assert seen[0].ending["what"] == "shutdown"
    assert all(box.live["FINALIZING_NS"] > 0 for box in seen)


def test_the_launcher_witnesses_how_its_workers_ended(
    job: tuple[Path, subprocess.CompletedProcess[str]], seen: list[Seen]
) -> None:
    statuses = exits(job[0])
    assert os.waitstatus_to_exitcode(statuses[seen[1].identity["pid"]]) == 3
    assert os.waitstatus_to_exitcode(statuses[seen[0].identity["pid"]]) in (0, -15)  # torchrun ends the others
