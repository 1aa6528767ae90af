"""The box: what one side writes, the other reads, whatever it is and however much of it there is."""

import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagd.probes.box import layout
from diagd.probes.box.layout import FieldIndex, Flag, Live, Op, Record
from diagd.probes.box.reader import BadBox, BoxReader
from diagd.probes.box.writer import BoxWriter

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


@pytest.fixture
def box(tmp_path: Path) -> BoxWriter:
    return BoxWriter(tmp_path / "1-1.box")


@pytest.fixture
def reader(box: BoxWriter) -> BoxReader:
    return BoxReader(box.path)


def begin(box: BoxWriter, op: Op = Op.ALLREDUCE, dims: tuple[int, ...] = (2,), **more: int) -> int:
    ring = box.ring()
    assert ring is not None
    return ring.begin(op, 0, 0, 1, 1, -1, 0, 0, 0, 2, 1, dims, **more)


@QUIET
@given(value=VALUES)
def test_a_text_comes_back_as_it_was_written(box: BoxWriter, reader: BoxReader, value: object) -> None:
    version = reader.text_version(layout.IDENTITY)
    assert box.set_text(layout.IDENTITY, value)
    assert reader.text(layout.IDENTITY) == value
    assert reader.text_version(layout.IDENTITY) != version


def test_a_text_too_long_for_its_section_leaves_the_old_one(box: BoxWriter, reader: BoxReader) -> None:
    box.set_text(layout.IDENTITY, "old")
    assert not box.set_text(layout.IDENTITY, "x" * layout.IDENTITY.size)
    assert reader.text(layout.IDENTITY) == "old"


@QUIET
@given(texts=st.lists(st.text(max_size=50), max_size=40))
def test_strings_come_back_and_equal_ones_are_kept_once(box: BoxWriter, reader: BoxReader, texts: list[str]) -> None:
    lasting = {text: box.intern(text, text) for text in texts}
    passing = {text: box.passing(text) for text in texts}
    for text in texts:
        assert box.intern(text, text) == lasting[text]
        for offset in (lasting[text], passing[text]):
            assert reader.string(offset) == text.encode("utf-8", "replace").decode()


def test_passing_strings_never_run_out_and_leave_the_lasting_ones_alone(box: BoxWriter, reader: BoxReader) -> None:
    lasting = box.intern("site", "train.py\t1\tmain")
    offsets = [box.passing(f"key {number} " + "x" * 200) for number in range(2000)]
    assert all(offsets)
    assert reader.string(offsets[-1]).startswith("key 1999 ")
    assert reader.string(lasting) == "train.py\t1\tmain"


def test_lasting_strings_stop_when_there_is_no_room_and_that_is_counted(box: BoxWriter, reader: BoxReader) -> None:
    offsets = [box.intern(number, "y" * 3000) for number in range(100)]
    assert offsets[-1] == 0
    assert reader.live(Live.DROPPED) > 0
    assert reader.string(offsets[0]) == "y" * 3000


@QUIET
@given(
    op=st.sampled_from(Op), flags=st.integers(0, 255), peer=st.integers(-1, 2**31 - 1), tag=st.integers(0, 2**31 - 1),
    seq=st.integers(0, 2**62), numel=st.integers(-1, 2**62), tensors=st.integers(0, 10**6),
    dims=st.lists(st.integers(0, 2**31), max_size=9),
)  # fmt: skip
def test_a_record_comes_back_as_it_was_written(
    box: BoxWriter, reader: BoxReader, op: Op, flags: int, peer: int, tag: int, seq: int, numel: int, tensors: int,
    dims: list[int],
) -> None:  # fmt: skip
    ring = box.ring()
    assert ring is not None
    ring.begin(op, 7, flags, 3, 2, peer, tag, 0, 0, numel, tensors, tuple(dims), seq)
    record = reader.history(1)[-1]
    assert (record.op, record.flags, record.peer, record.tag) == (op, flags, peer, tag)
    assert (record.seq, record.numel, record.tensors) == (seq, numel, min(tensors, 255))
    assert (record.ndim, record.dims) == (len(dims), tuple(dims[: layout.MAX_DIMS]))
    assert reader.live(Live.OPERATIONS) == record.serial


@QUIET
@given(st.lists(st.tuples(st.sampled_from(["begin", "wait", "return", "fail"]), st.integers(0, 5)), max_size=700))
def test_unfinished_operations_are_just_those_begun_and_not_returned(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("box")
    box = BoxWriter(folder / "1-1.box")
    reader = BoxReader(box.path)
    ring = box.ring()
    assert ring is not None
    open_: list[tuple[int, int]] = []
    for action, which in actions:
        if action == "begin" or not open_:
            index = begin(box)
            open_ = [entry for entry in open_ if entry[0] != index] + [(index, box.numbers[index])]
        elif action == "wait":
            ring.set(open_[which % len(open_)][0], FieldIndex.WAIT, 5)
        else:
            index, _ = open_.pop(which % len(open_))
            if action == "fail":
                ring.fail(index, Flag.FAILED, box.passing("E: m"))
            ring.set(index, FieldIndex.RETURNED, 9)
    assert {record.serial for record in reader.unfinished()} == {serial for _, serial in open_}
    for record in reader.history():
        if record.flags & Flag.FAILED:
            assert reader.string(record.detail) == "E: m"
    box.path.unlink()


def test_an_operation_blocks_while_it_is_issued_or_waited_for(box: BoxWriter, reader: BoxReader) -> None:
    index = begin(box)

    def blocking() -> list[bool]:
        return [record.blocking for record in reader.unfinished()]

    assert blocking() == [True]
    box.numbers[index + FieldIndex.ISSUED] = 1
    assert blocking() == [False]
    box.numbers[index + FieldIndex.WAIT] = 1
    assert blocking() == [True]
    box.numbers[index + FieldIndex.RETURNED] = 1
    assert blocking() == []


def test_each_thread_has_a_ring_and_takes_over_that_of_a_dead_one(box: BoxWriter, reader: BoxReader) -> None:
    def work() -> None:
        for _ in range(3):
            begin(box)

    for number in range(layout.RING_COUNT * 3):
        thread = threading.Thread(target=work, name=f"worker {number}")
        thread.start()
        thread.join()
    assert reader.live(Live.RINGS_USED) <= layout.RING_COUNT
    assert reader.live(Live.DROPPED) == 0
    assert f"worker {layout.RING_COUNT * 3 - 1}" in dict(map(reversed, reader.threads()))  # type: ignore[arg-type]
    assert reader.live(Live.OPERATIONS) == layout.RING_COUNT * 9


def test_more_living_threads_than_rings_lose_records_and_nothing_else(box: BoxWriter, reader: BoxReader) -> None:
    gate = threading.Barrier(layout.RING_COUNT + 5)
    rings = []

    def work() -> None:
        rings.append(box.ring())
        gate.wait(20)

    threads = [threading.Thread(target=work) for _ in range(layout.RING_COUNT + 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rings.count(None) == 5
    assert reader.live(Live.DROPPED) == 5


def test_a_reader_beside_a_writer_never_sees_half_a_record(box: BoxWriter, reader: BoxReader) -> None:
    stop = threading.Event()

    def write() -> None:
        number = 1
        while not stop.is_set():
            begin(box, dims=(number,) * 6, seq=number)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    found: list[Record] = []
    while len(found) < 20_000:
        found += reader.history()
    stop.set()
    thread.join()
    assert all(set(record.dims) == {record.seq} for record in found)


@pytest.mark.parametrize("size", [0, 10, 4096, layout.BOX_SIZE - 1])
def test_a_file_that_was_cut_off_is_refused_with_the_reason(tmp_path: Path, size: int) -> None:
    path = tmp_path / "1-1.box"
    path.write_bytes(b"\0" * size)
    with pytest.raises(BadBox, match="cut off"):
        BoxReader(path)


def test_a_foreign_file_and_another_version_are_refused(tmp_path: Path, box: BoxWriter) -> None:
    foreign = tmp_path / "2-2.box"
    foreign.write_bytes(b"x" * layout.BOX_SIZE)
    with pytest.raises(BadBox, match="does not start"):
        BoxReader(foreign)
    layout.HEADER.pack_into(box._map, 0, layout.MAGIC, 99, 0, 0, 0, 0, 0, 0)
    with pytest.raises(BadBox, match="version 99"):
        BoxReader(box.path)


@QUIET
@given(noise=st.binary(min_size=1, max_size=300), at=st.integers(layout.LIVE_AT, layout.BOX_SIZE - 300))
def test_rubbish_in_a_box_makes_no_reader_fail(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("box") / "1-1.box"
    box = BoxWriter(path)
    begin(box)
    box._map[at : at + len(noise)] = noise
    reader = BoxReader(path)
    reader.history()
    reader.unfinished()
    reader.threads()
    for section in (layout.IDENTITY, layout.GROUPS, layout.ENDING):
        reader.text(section)
    reader.string(8)
    reader.close()
    path.unlink()
