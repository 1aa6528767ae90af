"""What a script prints passes as it is, and its metrics are seen."""

import io
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.probes.jobs import SCRIPTS, environment
from tests.probes.test_logged import samples, told

from diagd.daemon.agent.signals import SignalReader
from diagd.daemon.state.signals import SignalBook
from diagd.probes import logged, output
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.budget import BUDGET
from diagd.probes.guard import MAX_ERRORS, Probe
from diagd.probes.output import Stream
from diagd.probes.state import STATE

PRINTS = SCRIPTS / "prints.py"


def bytes_of(folder: Path | None, **extra: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [sys.executable, str(PRINTS)], env=environment(folder, **extra), capture_output=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_script_prints_the_same_bytes_and_its_metrics_are_seen(tmp_path: Path) -> None:
    plain = bytes_of(None)
    assert plain[0] == 0
    assert bytes_of(tmp_path) == plain
    (path,) = tmp_path.glob("*.signals")
    news = SignalReader(path, 0, 1).news()
    book = SignalBook()
    book.apply([news] if news is not None else [])
    seen = {name.removeprefix("logged/") for name in book.names(0) if name.startswith("logged/")}
    assert not {"loss", "kl", "reward", "lr", "entropy", "bar", "nested/a", "two", "tee", "thread", "red"} - seen
    assert not seen & {"hidden", "child", "bytes", "raw", "long"}
    loss, lines = book.series(0, "logged/loss"), plain[1].decode("utf-8", "replace").splitlines()
    assert loss is not None
    assert loss.steps.tolist() == [0, 1, 2, 3, 4]
    assert [int(value) for value in loss.values] == [int(line.split()[3][0]) for line in lines[:10:2]]


@pytest.fixture
def stream(recording: BoxWriter) -> Iterator[tuple[io.BytesIO, io.TextIOWrapper, Stream, Probe]]:
    logged.forget()
    BUDGET.forget()
    raw = io.BytesIO()
    text = io.TextIOWrapper(raw, "utf-8", write_through=True)
    probe = Probe("output", 0, True)
    watched = Stream(probe, text)
    watched.put_in_place()
    yield raw, text, watched, probe
    watched.remove()
    logged.forget()


Watched = tuple[io.BytesIO, io.TextIOWrapper, Stream, Probe]


def test_a_line_is_read_when_it_is_whole(stream: Watched, recording: BoxWriter) -> None:
    raw, text, *_ = stream
    for part in ("step 3 lo", "ss 0.", "5"):
        text.write(part)
    text.write("\nloss 0.75")
    text.write("\r")
    assert samples(recording, "loss") == [(3, 0.5), (1, 0.75)]
    assert raw.getvalue() == b"step 3 loss 0.5\nloss 0.75\r"


def test_the_time_of_a_line_is_noted_where_the_main_thread_writes_it(stream: Watched, recording: BoxWriter) -> None:
    text = stream[1]
    STATE.live[Live.SAID_NS] = 0
    text.write("a word")
    other = threading.Thread(target=text.write, args=("of another thread\n",))
    other.start()
    other.join()
    assert STATE.live[Live.SAID_NS] == 0
    before = time.monotonic_ns()
    text.write("try 3: not there yet\n")
    assert before <= STATE.live[Live.SAID_NS] <= time.monotonic_ns()


def test_a_line_without_end_is_let_go_of(stream: Watched, recording: BoxWriter) -> None:
    _, text, watched, _ = stream
    text.write("kl=1\n")
    for _ in range(1000):
        text.write("a=1 " * 100)
    assert sum(map(len, watched.parts)) <= 256 * 400
    text.write("b=2\nloss=3\n")
    assert told(recording).names(0) == ("logged/kl", "logged/loss")


def test_a_signal_handler_that_prints_within_a_print_does_not_hang(stream: Watched, recording: BoxWriter) -> None:
    _, text, watched, _ = stream
    with watched._lock:
        assert text.write("handler=1\n") == 10
    text.write("of which line is this=2\nloss=3\n")
    assert told(recording).names(0) == ("logged/loss",)


def test_a_reader_that_fails_is_switched_off_and_the_stream_goes_on(
    stream: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, text, watched, probe = stream
    monkeypatch.setattr(watched._reader, "read", lambda line: 1 / 0)
    for number in range(MAX_ERRORS + 2):
        print("loss", number, file=text)
    assert probe.tripped
    assert raw.getvalue() == b"".join(b"loss %d\n" % number for number in range(MAX_ERRORS + 2))


def test_the_stream_is_left_as_it_was(recording: BoxWriter) -> None:
    text = io.TextIOWrapper(io.BytesIO(), "utf-8")
    before = vars(text).copy()
    watched = Stream(Probe("output", 0, True), text)
    watched.put_in_place()
    assert text.write is watched.write
    watched.remove()
    assert vars(text) == before


def test_what_somebody_put_over_the_stream_stays(recording: BoxWriter) -> None:
    text = io.TextIOWrapper(io.BytesIO(), "utf-8")
    watched = Stream(Probe("output", 0, True), text)
    watched.put_in_place()
    text.write = over = lambda text: len(text)  # type: ignore[method-assign]
    watched.remove()
    assert text.write is over


def test_a_write_that_somebody_put_there_before_is_called_and_its_answer_handed_on(recording: BoxWriter) -> None:
    logged.forget()
    BUDGET.forget()
    text, seen, probe = io.TextIOWrapper(io.BytesIO(), "utf-8"), list[str](), Probe("output", 0, True)
    text.write = seen.append  # type: ignore[method-assign, assignment]
    watched = Stream(probe, text)
    watched.put_in_place()
    for _ in range(5):
        print("kl", 0.25, file=text)
    assert text.write("") is None
    watched.remove()
    assert (seen[:4], probe.errors) == (["kl", " ", "0.25", "\n"], 0)
    assert samples(recording, "kl") == [(1, 0.25)]
    assert text.write == seen.append  # type: ignore[comparison-overlap]


def test_only_real_streams_are_watched(monkeypatch: pytest.MonkeyPatch, recording: BoxWriter) -> None:
    class Odd(io.TextIOWrapper):
        pass

    odd = Odd(io.BytesIO(), "utf-8")
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        monkeypatch.setattr(sys, name, odd)
    output.begin(Probe("output", 0, True))
    assert "write" not in vars(odd)
    output.remove()
