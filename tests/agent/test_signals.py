"""A rank's signals: what the rank writes is what the aggregator's state gets, once, over the wire."""

import math
from pathlib import Path

import numpy as np
import pytest

from diagd.daemon.agent import signals as reading
from diagd.daemon.agent.signals import NoSignals, SignalReader, SignalShelf
from diagd.daemon.agent.wire import signals_message
from diagd.daemon.state.apply import BadMessage, signal_values
from diagd.daemon.state.scalars import SignalNews
from diagd.probes.box import signals as layout
from diagd.probes.box.signals import SignalWriter
from diagd.proto.v1.agent_pb2 import Window


@pytest.fixture
def writer(tmp_path: Path) -> SignalWriter:
    return SignalWriter(tmp_path / "7-1.signals")


def read(reader: SignalReader) -> SignalNews:
    news = reader.news()
    assert news is not None
    return news


def samples(news: SignalNews) -> list[tuple[int, int, float]]:
    return list(zip(news.names, news.steps, news.values, strict=True))


def test_what_is_written_comes_over_the_wire_once(writer: SignalWriter) -> None:
    reader = SignalReader(writer.path, rank=3, pid=7)
    assert reader.news() is None
    writer.sample("loss", 1, 2.5)
    writer.sample("lr/0", 1, 1e-3)
    writer.sample("loss", 2, math.inf)
    writer.fact("loss/dtype", 1, "float32")
    writer.fact("loss/dtype", 2, "float16")
    news = read(reader)
    assert (news.rank, news.pid, news.first_string) == (3, 7, 0)
    assert news.strings == ("loss", "lr/0", "loss/dtype", "float32", "float16")
    assert samples(news) == [(0, 1, 2.5), (1, 1, 1e-3), (0, 2, math.inf)]
    assert news.facts == ((2, 2, 4),)
    assert reader.news() is None
    window = Window.FromString(Window(signals=[signals_message(news)]).SerializeToString())
    assert signal_values(window) == [news]
    writer.sample("loss", 3, 1.0)
    later = read(reader)
    assert (later.first_string, later.strings, samples(later), later.facts) == (5, (), [(0, 3, 1.0)], ())
    reader.forget_sent()
    again = read(reader)
    assert (again.first_string, again.strings, again.facts) == (0, news.strings, news.facts)
    assert not len(again.names)


def test_what_was_overwritten_before_it_was_read_is_left_out(writer: SignalWriter) -> None:
    reader = SignalReader(writer.path, 0, 7)
    for step in range(layout.MAX_SAMPLES + 5):
        writer.sample("loss", step, math.nan)
    news = read(reader)
    assert len(news.steps) == layout.MAX_SAMPLES
    assert news.steps[0] == 5


def test_of_far_too_much_each_name_keeps_the_same_steps_and_what_is_not_finite_is_kept(writer: SignalWriter) -> None:
    reader = SignalReader(writer.path, 0, 7)
    for step in range(6 * reading.MAX_TOLD // 2):
        writer.sample("loss", step, math.nan if step == 5 else 1.0)
        writer.sample("grad_norm", step, 2.0)
    writer.sample("lr/0", 3, 0.1)
    news = read(reader)
    assert len(news.steps) < reading.MAX_TOLD + 10
    by_name = {name: [s for n, s, _ in samples(news) if n == number] for number, name in enumerate(news.strings)}
    assert by_name["lr/0"] == [3]
    assert set(by_name["loss"]) - set(by_name["grad_norm"]) == {5}
    assert set(np.diff(by_name["grad_norm"])) == {8}


def test_names_without_room_are_counted_and_others_are_taken(writer: SignalWriter) -> None:
    for number in range(1100):
        writer.sample(f"{number}" + "x" * 990, 1, 0.5)
    writer.sample("loss", 1, 0.5)
    news = read(SignalReader(writer.path, 0, 7))
    assert news.left_out == 1100 - (len(news.strings) - 1)
    assert news.strings[-1] == "loss"


def test_facts_without_room_are_counted(writer: SignalWriter) -> None:
    for number in range(layout.MAX_FACTS + 3):
        writer.fact(f"{number}", 1, "said")
    news = read(SignalReader(writer.path, 0, 7))
    assert (len(news.facts), news.left_out) == (layout.MAX_FACTS, 3)


def test_a_shelf_reads_what_is_there_and_lets_go_of_what_is_gone(writer: SignalWriter) -> None:
    shelf = SignalShelf()
    box = writer.path.with_suffix(".box")
    without = writer.path.with_name("8-1.box")
    writer.sample("loss", 1, 1.0)
    assert [news.rank for news in shelf.news([(2, 7, box), (3, 8, without)])] == [2]
    assert shelf.news([(2, 7, box), (3, 8, without)]) == []
    assert [news.strings for news in shelf.news([(2, 7, box)], anew=True)] == [("loss",)]
    assert shelf.news([]) == []
    assert [news.strings for news in shelf.news([(2, 7, box)])] == [("loss",)]


def test_a_file_that_holds_no_signals_or_was_cut_off_is_not_read(writer: SignalWriter, tmp_path: Path) -> None:
    foreign = tmp_path / "9-1.signals"
    foreign.write_bytes(b"x" * layout.SIZE)
    with pytest.raises(NoSignals):
        SignalReader(foreign, 0, 9)
    writer.sample("loss", 1, 1.0)
    reader = SignalReader(writer.path, 0, 7)
    with writer.path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(NoSignals):
        reader.news()
    with pytest.raises(NoSignals):
        SignalReader(writer.path, 0, 7)


def test_samples_that_do_not_fit_together_are_refused() -> None:
    message = signals_message(SignalNews(0, 1, 0, ("loss",), [0], [1], [2.0]))
    message.steps = b""
    with pytest.raises(BadMessage):
        signal_values(Window(signals=[message]))
    message.values = message.values[:3]
    with pytest.raises(BadMessage):
        signal_values(Window(signals=[message]))
