"""A rank's ledger: what the rank writes is what the aggregator's state gets, once, over the wire."""

import json
import os
import zlib
from pathlib import Path

import pytest

from diagd.daemon.agent.ledgers import LedgerReader, LedgerShelf, NoLedger
from diagd.daemon.agent.wire import ledger_message
from diagd.daemon.state.apply import BadMessage, ledger_values
from diagd.daemon.state.tensors import LedgerNews, TensorInfo
from diagd.probes.box import ledger as layout
from diagd.probes.box import sums
from diagd.probes.box.ledger import Flag, Kind, LedgerWriter, Tensor
from diagd.probes.box.requests import Request
from diagd.proto.v1.agent_pb2 import Window

WEIGHT = Tensor("Net.fc.weight", Kind.PARAMETER, "float32", "128,64", "ddp", "0,1", Flag.TRAINABLE | Flag.OWNED, 8192)
MEAN = Tensor("Net.bn.running_mean", Kind.BUFFER, "bfloat16", "", "plain", "", Flag.LOCAL | Flag.COPY, 1)
FROZEN = Tensor("Enc.weight", Kind.PARAMETER, "float32", "4", "plain", "", 0, 4)


@pytest.fixture
def writer(tmp_path: Path) -> LedgerWriter:
    return LedgerWriter(tmp_path / "7-1.ledger")


def read(reader: LedgerReader) -> LedgerNews:
    news = reader.news()
    assert news is not None
    return news


def test_what_is_written_comes_over_the_wire_once(writer: LedgerWriter) -> None:
    reader = LedgerReader(writer.path, rank=3, pid=7)
    assert reader.news() is None
    assert [writer.add(WEIGHT), writer.add(MEAN)] == [0, 1]
    writer.sample(0, 0, -(2**63))
    writer.sample(1, 5, 2**63 - 1)
    news = read(reader)
    assert news.tensors == (
        TensorInfo("Net.fc.weight", "parameter", "float32", (128, 64), "ddp", (0, 1), trained_model=False),
        TensorInfo(
            "Net.bn.running_mean", "buffer", "bfloat16", (), "plain", (),
            trainable=False, owned=False, local=True, copy=True, trained_model=False,
        ),
    )  # fmt: skip
    assert (news.rank, news.pid, news.first_row, news.answered) == (3, 7, 0, 0)
    assert list(zip(news.rows, news.steps, news.digests, strict=True)) == [(0, 0, -(2**63)), (1, 5, 2**63 - 1)]
    assert reader.news() is None
    window = Window.FromString(Window(ledgers=[ledger_message(news)]).SerializeToString())
    assert ledger_values(window) == [news]
    writer.sample(0, 33, 4)
    assert read(reader) == LedgerNews(3, 7, 2, (), [0], [33], [4], 0, [], [], [], [], [])
    reader.forget_sent()
    again = read(reader)
    assert (again.first_row, again.tensors, list(again.rows)) == (0, news.tensors, [])


def test_of_many_samples_the_early_ones_those_of_round_turns_and_the_seldom_ones_are_told(writer: LedgerWriter) -> None:
    writer.add(WEIGHT)
    writer.add(FROZEN)
    reader = LedgerReader(writer.path, 0, 7)
    for step in range(0, 32 * 40, 32):
        writer.sample(0, step + 1, step)
        writer.sample(1, step + 1, step)
    news = read(reader)
    of_trained = [step for row, step in zip(news.rows, news.steps, strict=True) if row == 0]
    assert of_trained == [1, 32 * 32 + 1]
    assert list(news.rows).count(1) == 40


def test_what_was_overwritten_before_it_was_read_is_left_out(writer: LedgerWriter) -> None:
    writer.add(FROZEN)
    reader = LedgerReader(writer.path, 0, 7)
    for step in range(layout.MAX_SAMPLES + 5):
        writer.sample(0, step, -step)
    news = read(reader)
    assert len(news.steps) == layout.MAX_SAMPLES
    assert (news.steps[0], news.digests[-1]) == (5, -(layout.MAX_SAMPLES + 4))


def test_there_is_room_for_so_many_tensors(writer: LedgerWriter) -> None:
    for number in range(layout.MAX_ROWS):
        assert writer.add(FROZEN._replace(name=f"{number}")) == number
    assert writer.add(FROZEN) is None


def test_how_many_are_left_out_is_told_also_where_none_is_in_it(writer: LedgerWriter) -> None:
    reader = LedgerReader(writer.path, 0, 7)
    writer.leave_out()
    assert (read(reader).left_out, reader.news()) == (1, None)
    writer.leave_out()
    assert read(reader).left_out == 2


def test_digests_of_parts_and_answers_come_over_the_wire_once(writer: LedgerWriter) -> None:
    writer.add(WEIGHT)
    reader = LedgerReader(writer.path, 3, 7)
    reader.news()
    writer.part(0, 40, 64, 128, -5)
    writer.part(0, 40, 128, 2**40, 2**63 - 1)
    writer.answer(2, 40)
    news = read(reader)
    assert (list(news.part_rows), list(news.part_steps)) == ([0, 0], [40, 40])
    assert (list(news.part_firsts), list(news.part_stops)) == ([64, 128], [128, 2**40])
    assert (list(news.part_digests), news.answered, news.answer) == ([-5, 2**63 - 1], 2, 40)
    window = Window.FromString(Window(ledgers=[ledger_message(news)]).SerializeToString())
    assert ledger_values(window) == [news]
    assert reader.news() is None
    writer.answer(3, -1)
    assert (read(reader).answer, reader.news()) == (-1, None)


def test_columns_of_parts_that_do_not_fit_together_are_refused() -> None:
    window = Window()
    window.ledgers.add(rank=0, part_rows=bytes(4), part_steps=bytes(8))
    with pytest.raises(BadMessage):
        ledger_values(window)


def test_what_was_asked_for_is_told_however_many_steps_a_second_there_are(writer: LedgerWriter) -> None:
    writer.add(WEIGHT)
    shelf, box = LedgerShelf(), writer.path.with_suffix(".box")
    shelf.news([(2, 7, box)])
    shelf.ask(2, 7, Request(1, 1001, True))
    assert writer.request(0) == Request(1, 1001, True)
    for step in (1000, 1001, 32 * 1000):
        writer.sample(0, step, step)
    (news,) = shelf.news([(2, 7, box)])
    assert list(news.steps) == [1001]


def test_another_process_is_not_asked(writer: LedgerWriter) -> None:
    writer.add(WEIGHT)
    shelf = LedgerShelf()
    shelf.news([(2, 7, writer.path.with_suffix(".box"))])
    for rank, pid in ((2, 8), (1, 7)):
        with pytest.raises(ValueError, match="nothing is asked"):
            shelf.ask(rank, pid, Request(1, 50))
    assert writer.request(0) is None


def test_names_without_room_are_left_out(writer: LedgerWriter) -> None:
    rows = [writer.add(FROZEN._replace(name=f"{number}" + "x" * 900)) for number in range(1300)]
    assert rows[-1] is None
    assert None not in rows[:1000]


def test_a_shelf_reads_each_ledger_that_is_there_and_lets_go_of_those_that_are_gone(writer: LedgerWriter) -> None:
    shelf = LedgerShelf()
    box = writer.path.with_suffix(".box")
    without = writer.path.with_name("8-1.box")
    writer.add(WEIGHT)
    assert [news.rank for news in shelf.news([(2, 7, box), (3, 8, without)])] == [2]
    assert shelf.news([(2, 7, box), (3, 8, without)]) == []
    assert [len(news.tensors) for news in shelf.news([(2, 7, box)], anew=True)] == [1]
    assert shelf.news([]) == []
    assert [len(news.tensors) for news in shelf.news([(2, 7, box)])] == [1]


def test_a_file_that_is_no_ledger_or_was_cut_off_is_not_read(writer: LedgerWriter, tmp_path: Path) -> None:
    foreign = tmp_path / "9-1.ledger"
    foreign.write_bytes(b"x" * layout.SIZE)
    with pytest.raises(NoLedger):
        LedgerReader(foreign, 0, 9)
    writer.add(WEIGHT)
    reader = LedgerReader(writer.path, 0, 7)
    with writer.path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(NoLedger):
        reader.news()
    with pytest.raises(NoLedger):
        LedgerReader(writer.path, 0, 7)


def test_one_that_is_still_being_made_is_looked_at_again(writer: LedgerWriter, tmp_path: Path) -> None:
    shelf, box = LedgerShelf(), writer.path.with_suffix(".box")
    writer.add(WEIGHT)
    made = tmp_path / "made"
    writer.path.rename(made)
    writer.path.write_bytes(b"")
    assert shelf.news([(2, 7, box)]) == []
    writer.path.write_bytes(bytes(layout.SIZE))
    assert shelf.news([(2, 7, box)]) == []
    made.replace(writer.path)
    assert [news.rank for news in shelf.news([(2, 7, box)])] == [2]


def test_one_that_stays_cut_off_is_given_up(writer: LedgerWriter) -> None:
    shelf, box = LedgerShelf(), writer.path.with_suffix(".box")
    whole = writer.path.read_bytes()
    writer.path.write_bytes(b"")
    os.utime(writer.path, (1.0, 1.0))
    assert shelf.news([(2, 7, box)]) == []
    writer.path.write_bytes(whole)
    assert shelf.news([(2, 7, box)]) == []


def test_samples_that_do_not_fit_together_are_refused() -> None:
    message = ledger_message(LedgerNews(0, 1, rows=[0], steps=[1], digests=[2]))
    message.steps = message.steps[:4]
    with pytest.raises(BadMessage):
        ledger_values(Window(ledgers=[message]))
    message.steps = b""
    with pytest.raises(BadMessage):
        ledger_values(Window(ledgers=[message]))


def test_what_a_rank_tells_beside_its_ledger_comes_with_the_answer_once(writer: LedgerWriter) -> None:
    reader = LedgerReader(writer.path, 0, 7)
    sums.write(writer.path.with_suffix(sums.SUFFIX), 3, 9, [["parameter", "w"]])
    assert reader.news() is None  # it is told when the request is done
    writer.answer(3, 9)
    news = read(reader)
    assert json.loads(zlib.decompress(news.sums))["tensors"] == [["parameter", "w"]]
    assert ledger_values(Window.FromString(Window(ledgers=[ledger_message(news)]).SerializeToString())) == [news]
    writer.answer(4, 12)  # of another kind of request
    news = read(reader)
    assert (news.answered, news.sums) == (4, b"")
