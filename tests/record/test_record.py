"""A record comes back as it was written, also where its end was cut off, and replays to the same verdicts."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.aggregator.fakes import FakeBook, FakeLink, Wanted, incident

from diagd.daemon.agent.wire import detail_message, facts_columns
from diagd.daemon.aggregator.calm import EVERY_S
from diagd.daemon.aggregator.judging import Judge
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.replay import replay
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.record.record import MAGIC, NotARecord, RecordReader, RecordWriter
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Facts
from diagd.proto.v1.agent_pb2 import ConnectRequest, Goodbye, Window
from diagd.proto.v1.record_pb2 import RecordEntry


def entry(number: int) -> RecordEntry:
    goodbye = Goodbye(reason="x" * number, exit_code=number)
    return RecordEntry(received_s=float(number), job_id="job", node="n", request=ConnectRequest(goodbye=goodbye))


def write(path: Path, count: int) -> None:
    with RecordWriter(path) as writer:
        for number in range(count):
            writer.write(entry(number))


@given(st.integers(0, 5), st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_a_record_cut_off_anywhere_gives_its_sound_beginning(count: int, cut: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r"
        write(path, count)
        whole = path.read_bytes()
        kept = whole[: max(len(whole) - cut, len(MAGIC))]
        path.write_bytes(kept)
        reader = RecordReader(path)
        found = list(reader)
        assert found == [entry(n) for n in range(len(found))]
        assert reader.cut_off == (reader.sound_bytes < len(kept))
        if cut == 0:
            assert len(found) == count


def test_a_record_goes_on_after_its_writer_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "r"
    write(path, 3)
    path.write_bytes(path.read_bytes()[:-2])
    with RecordWriter(path) as writer:
        writer.write(entry(7))
    assert list(RecordReader(path)) == [entry(0), entry(1), entry(7)]


def test_what_is_no_record_is_neither_read_nor_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text("my thesis, chapter one")
    with pytest.raises(NotARecord, match="no record"):
        list(RecordReader(path))
    with pytest.raises(NotARecord, match="not overwritten"):
        RecordWriter(path)
    assert path.read_text() == "my thesis, chapter one"


def stuck_from(step: int) -> Judge:
    def detect(state: JobState) -> tuple[Incident, ...]:
        stuck = bool(len(state.columns.step)) and state.columns.step[0] >= step
        return (incident(opened_s=state.now_s),) if stuck else ()

    return Judge(detect, lambda state: Wanted(), FakeBook)


def test_a_replay_finds_what_the_aggregator_found(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "r") as writer:
        live = JobLoop("job", stuck_from(3), record=writer.write)
        link = FakeLink()
        live.connect(link)
        live.started(["python", "t.py"], 99.0, 30.0, 100.0)
        for number in range(6):
            now_s = 100.0 + number / 2
            window = Window(time_s=now_s, facts=facts_columns([Facts(0, pid=1, step=number)]))
            window.details.append(detail_message(Detail(0, pid=1, host=f"h{number}")))
            live.receive(link, ConnectRequest(window=window), now_s)
            live.tick(now_s)
        live.ended(1, 103.0)
        live.tick(103.0)
    states = [(s.now_s, list(i)) for s, i in replay(tmp_path / "r", stuck_from(3))]
    state, incidents = list(replay(tmp_path / "r", stuck_from(3)))[-1]
    assert (state.command, state.hang_after_s, state.exit_code) == (("python", "t.py"), 30.0, 1)
    assert state.detail(0) == live.state.detail(0)
    assert [i.id for i in incidents] == [i.id for i in live.book.incidents]
    first = next(now_s for now_s, found in states if found)
    assert 101.5 <= first <= 101.75 + EVERY_S  # a job that goes on is not judged at each look
