"""From a box's records to the model's values."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.builders import box, enter_all_reduce

from diagd.daemon.agent import boxes
from diagd.daemon.state.model import Frame
from diagd.probes.box import layout
from diagd.probes.box.layout import Dtype, FieldIndex, Flag, Live, Op, Phase
from diagd.probes.box.reader import BoxReader
from diagd.probes.box.writer import BoxWriter


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[BoxWriter, BoxReader]]:
    writer = box(tmp_path)
    reader = BoxReader(writer.path)
    yield writer, reader
    reader.close()


def test_an_operation_has_everything_that_its_record_holds(pair: tuple[BoxWriter, BoxReader]) -> None:
    writer, reader = pair
    enter_all_reduce(writer)
    (operation,) = boxes.operations(reader, reader.unfinished())
    assert (operation.name, operation.group, operation.seq, operation.source) == ("ALLREDUCE", "0", 12, "probe")
    assert (operation.shapes, operation.numel, operation.dtype, operation.reduce_op) == (
        ((8, 9),),
        72,
        "float32",
        "SUM",
    )
    assert operation.site == Frame("main", "/home/me/train.py", 41, user=True)
    assert (operation.blocking, operation.is_async, operation.returned_s, operation.peer) == (True, False, None, -1)
    assert operation.entered_s == pytest.approx(time.time(), abs=60)
    assert boxes.waits_since_s(reader, reader.unfinished()) == operation.entered_s


def test_an_operation_of_another_thread_than_the_main_one_has_its_name(pair: tuple[BoxWriter, BoxReader]) -> None:
    writer, reader = pair
    writer.live[Live.MAIN_THREAD] = threading.get_native_id()
    enter_all_reduce(writer)
    reporter = threading.Thread(target=enter_all_reduce, args=(writer,), name="reporter")
    reporter.start()
    reporter.join()
    found = boxes.operations(reader, reader.unfinished())
    assert [one.thread_name for one in found] == ["", "reporter"]
    assert found[0].thread != found[1].thread


def test_a_returned_operation_is_history_and_no_longer_waits(pair: tuple[BoxWriter, BoxReader]) -> None:
    writer, reader = pair
    ring, index = writer.ring(), enter_all_reduce(writer)
    assert ring is not None
    ring.set(index, FieldIndex.RETURNED, time.monotonic_ns())
    (operation,) = boxes.operations(reader, reader.history())
    assert operation.returned_s is not None
    assert not operation.blocking
    assert boxes.waits_since_s(reader, reader.unfinished()) == 0.0


def test_an_issued_operation_waits_only_from_its_wait_on(pair: tuple[BoxWriter, BoxReader]) -> None:
    writer, reader = pair
    ring, index = writer.ring(), enter_all_reduce(writer)
    assert ring is not None
    ring.set(index, FieldIndex.ISSUED, time.monotonic_ns())
    assert boxes.waits_since_s(reader, reader.unfinished()) == 0.0
    ring.set(index, FieldIndex.WAIT, time.monotonic_ns() + 5_000_000_000)
    (record,) = reader.unfinished()
    assert boxes.waits_since_s(reader, [record]) == reader.wall_s(record.wait_ns)


def test_what_an_operation_held_is_the_call_and_the_wait_and_not_the_time_between(
    pair: tuple[BoxWriter, BoxReader],
) -> None:
    writer, reader = pair
    ring, index = writer.ring(), enter_all_reduce(writer)
    assert ring is not None
    entered = reader.unfinished()[0].entered_ns
    ring.set(index, FieldIndex.ISSUED, entered + 1_000_000_000)
    ring.set(index, FieldIndex.WAIT, entered + 5_000_000_000)
    assert boxes.operations(reader, reader.history())[0].held_s == 0
    ring.set(index, FieldIndex.RETURNED, entered + 7_000_000_000)
    assert boxes.operations(reader, reader.history())[0].held_s == 3.0


def test_point_to_point_has_a_peer_and_a_failure_its_reason(pair: tuple[BoxWriter, BoxReader]) -> None:
    writer, reader = pair
    ring = writer.ring()
    assert ring is not None
    ring.begin(Op.SEND, 0, 0, Dtype.INT64, 0, 3, 9, 0, 0, 1, 1, (1,))
    ring.begin(Op.RECV, 0, Flag.ANY_SOURCE, Dtype.INT64, 0, 3, 0, 0, 0, 1, 1, (1,))
    index = ring.begin(Op.STORE_GET, -1, 0, 0, 0, -1, 0, 0, writer.intern("k", "key"), 0, 0, ())
    ring.fail(index, Flag.FAILED, writer.intern("e", "DistStoreError: timed out"))
    send, recv, get = boxes.operations(reader, reader.history())
    assert (send.peer, send.root, send.tag, send.p2p) == (3, -1, 9, True)
    assert recv.peer == -1
    assert (get.group, get.failed, get.detail, get.shapes) == ("", "DistStoreError: timed out", "", ())


def test_a_group_has_its_members_and_counters(pair: tuple[BoxWriter, BoxReader]) -> None:
    writer, reader = pair
    assert [(g.name, g.ranks, g.enqueued) for g in boxes.groups(reader)] == [("0", (0, 1, 2, 3), -1)]
    writer.set_counters(0, 12, 11)
    (group,) = boxes.groups(reader)
    assert (group.enqueued, group.completed, group.description) == (12, 11, "default_pg")


def test_of_several_endings_the_exception_counts(pair: tuple[BoxWriter, BoxReader]) -> None:
    writer, reader = pair
    assert boxes.ending(reader) is None
    error = {
        "what": "exception",
        "type": "ValueError",
        "message": "bad",
        "frames": [["f", "train.py", 3, True]],
        "at_ns": 1,
    }
    writer.set_text(layout.ENDING, [{"what": "exit", "code": 1}, error])
    ending = boxes.ending(reader)
    assert ending is not None
    assert (ending.what, ending.type, ending.frames) == ("exception", "ValueError", (Frame("f", "train.py", 3),))


def test_a_thread_that_ended_is_no_end_of_the_process(pair: tuple[BoxWriter, BoxReader]) -> None:
    writer, reader = pair
    error = {"what": "thread", "type": "KeyError", "thread": "feeder", "at_ns": 1}
    writer.set_text(layout.ENDING, error)
    assert boxes.ending(reader) is None
    for told in (error, {"what": "shutdown", "thread_ended": error}):
        writer.set_text(layout.ENDING, told)
        ended = boxes.thread_ended(reader)
        assert ended is not None
        assert (ended.type, ended.thread) == ("KeyError", "feeder")
    ending = boxes.ending(reader)
    assert ending is not None
    assert ending.what == "shutdown"


def test_what_is_not_understood_is_passed_over(pair: tuple[BoxWriter, BoxReader]) -> None:
    writer, reader = pair
    writer.live[Live.PHASE] = 99
    writer.set_text(layout.GROUPS, {"groups": ["?", {"index": "?", "ranks": "a-b"}]})
    writer.set_text(layout.ENDING, "gone")
    assert boxes.phase(reader) == "other"
    assert [(g.name, g.ranks) for g in boxes.groups(reader)] == [("", ())]
    assert boxes.group_names(reader) == {}
    assert boxes.ending(reader) is None
    assert boxes.site("no tabs") is None
    writer.live[Live.PHASE] = Phase.CHECKPOINT
    assert boxes.phase(reader) == "checkpoint"


@pytest.mark.parametrize(
    ("phase", "begun_ns", "stepped_ns", "shown"),
    [
        (Phase.FORWARD, 70, 90, "other"),
        (Phase.FORWARD, 95, 90, "forward"),
        (Phase.FORWARD, 0, 90, "forward"),  # nothing tells where one begins
        (Phase.FORWARD, 70, 0, "forward"),  # before the first step
        (Phase.BACKWARD, 70, 90, "backward"),
    ],
)
def test_what_comes_after_a_step_is_no_forward_pass_where_their_beginnings_are_told(
    pair: tuple[BoxWriter, BoxReader], phase: Phase, begun_ns: int, stepped_ns: int, shown: str
) -> None:
    writer, reader = pair
    writer.live[Live.PHASE], writer.live[Live.FORWARD_NS], writer.live[Live.STEP_NS] = phase, begun_ns, stepped_ns
    assert boxes.phase(reader) == shown


def test_members_may_be_listed_or_written_as_ranges() -> None:
    assert boxes.parse_ranks([0, 2]) == (0, 2)
    assert boxes.parse_ranks("0-2,5") == (0, 1, 2, 5)
    assert boxes.parse_ranks(None) == ()
