"""The files of metrics that a process writes, read from outside."""

import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diagd.daemon.agent.metric_files import MOST_FILES, MetricFiles, Writer
from diagd.daemon.agent.metric_tail import MOST_BYTES, TOO_MUCH, Sample, Tail

SCRIPT = "import sys\nfor line in sys.stdin:\n    exec(line)\n    print('done', flush=True)\n"


class Process:
    """A process that does what it is told, line by line."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", SCRIPT], cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def do(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def writer(self, rank: int = 0, step: int = 5) -> Writer:
        return Writer(rank, self.process.pid, step)


@contextmanager
def running(folder: Path) -> Iterator[Process]:
    process = Process(folder)
    with process.process:
        yield process
        process.process.kill()


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Process]:
    with running(tmp_path) as process:
        yield process


@pytest.fixture
def files() -> Iterator[MetricFiles]:
    found = MetricFiles()
    yield found
    found.close()


def losses(found: dict[int, list[Sample]], rank: int = 0) -> list[tuple[int | None, float]]:
    return [(sample.step, sample.value) for sample in found.get(rank, []) if sample.name == "loss"]


def test_a_file_that_is_held_open_is_read_as_it_grows(script: Process, files: MetricFiles) -> None:
    script.do("f = open('metrics.jsonl', 'w', buffering=1)")
    script.do('f.write(\'{"step": 1, "loss": 0.5, "kl": NaN}\\n\')')
    found = files.look([script.writer()])
    assert losses(found) == [(1, 0.5)]
    assert math.isnan(next(sample.value for sample in found[0] if sample.name == "kl"))
    script.do('f.write(\'{"step": 2, "loss"\'); f.flush()')
    assert files.look([script.writer()]) == {}
    script.do("f.write(': 0.25}\\n')")
    assert losses(files.look([script.writer()])) == [(2, 0.25)]


def test_a_file_that_is_opened_for_each_line_is_read_where_it_lies(script: Process, files: MetricFiles) -> None:
    append = "open('m.jsonl', 'a').write('{\"step\": %d, \"loss\": 1.0}\\n')"
    assert files.look([script.writer()]) == {}
    script.do(append % 1)
    assert losses(files.look([script.writer()])) == [(1, 1.0)]
    script.do(append % 2)
    assert losses(files.look([script.writer()])) == [(2, 1.0)]


def test_what_an_earlier_run_has_left_is_not_this_runs(tmp_path: Path, files: MetricFiles) -> None:
    (tmp_path / "old.jsonl").write_text('{"step": 900, "loss": 9.0}\n')
    (tmp_path / "both.csv").write_text("step,loss\n900,9.0\n")
    with running(tmp_path) as script:
        assert files.look([script.writer()]) == {}
        script.do("f = open('both.csv', 'a', buffering=1); f.write('1,0.5\\n')")
        assert losses(files.look([script.writer()])) == [(1, 0.5)]


def test_the_end_of_a_file_is_read_when_its_process_is_gone(script: Process, files: MetricFiles) -> None:
    script.do("f = open('m.jsonl', 'w'); f.write('{\"step\": 1, \"loss\": 0.5}\\n'); f.flush()")
    files.look([script.writer()])
    script.do('f.write(\'{"step": 2, "loss": 0.25}\\n\')')
    assert files.look([script.writer()]) == {}  # still in its buffer
    assert script.process.stdin is not None
    script.process.stdin.close()
    script.process.wait()
    assert losses(files.look([script.writer()])) == [(2, 0.25)]


def test_csv_and_logs_are_read_too_and_a_step_that_is_not_said_is_the_ranks(
    script: Process, files: MetricFiles
) -> None:
    script.do("c = open('a.csv', 'w', buffering=1); c.write('epoch,loss\\n0,0.5\\n0,nan\\n')")
    script.do("l = open('run.log', 'w', buffering=1); l.write('INFO step 7 loss 0.125 lr 0.1\\nno numbers\\n')")
    found = losses(files.look([script.writer(step=3)]))
    assert (3, 0.5) in found
    assert (7, 0.125) in found
    assert any(math.isnan(value) for _, value in found)


def test_other_files_are_left_alone(script: Process, files: MetricFiles) -> None:
    script.do("a = open('x.bin', 'w'); a.write('loss 1\\n'); a.flush()")
    script.do(
        "b = open('given.jsonl', 'w'); b.write('{\"loss\": 1}\\n'); b.flush(); c = open('given.jsonl'); b.close()"
    )
    script.do("import os; os.mkfifo('p.jsonl'); d = os.open('p.jsonl', os.O_RDWR | os.O_NONBLOCK)")
    files.look([script.writer()])
    assert losses(files.look([script.writer()])) == []


def test_of_two_ranks_each_has_its_own_file_and_one_that_both_hold_is_nobodys(
    tmp_path: Path, files: MetricFiles
) -> None:
    with running(tmp_path) as one, running(tmp_path) as two:
        both = [one.writer(0), two.writer(1)]
        files.look(both)
        for rank, script in enumerate((one, two)):
            script.do(
                f"f = open('rank{rank}.jsonl', 'a', buffering=1); f.write('{{\"step\": 1, \"loss\": {rank}}}\\n')"
            )
            script.do("g = open('shared.jsonl', 'a', buffering=1); g.write('{\"step\": 1, \"kl\": 1}\\n')")
        found = files.look(both)
        assert {rank: [(s.name, s.value) for s in samples] for rank, samples in found.items()} == {
            0: [("loss", 0.0)], 1: [("loss", 1.0)],
        }  # fmt: skip


def test_a_rank_that_opens_files_without_end_has_few_followed(script: Process, files: MetricFiles) -> None:
    script.do(f"f = [open('%d.jsonl' % n, 'w', buffering=1) for n in range({5 * MOST_FILES})]")
    script.do('[g.write(\'{"step": 1, "loss": 1}\\n\') for g in f]')
    assert len(losses(files.look([script.writer()]))) == MOST_FILES


def test_a_file_system_that_does_not_answer_holds_nobody_up(
    script: Process, files: MetricFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    look = files.look
    monkeypatch.setattr(files, "look", lambda writers: answers.wait(30) and look(writers))
    script.do("f = open('m.jsonl', 'w'); f.write('{\"step\": 1, \"loss\": 0.5}\\n'); f.flush()")
    assert [files.news([script.writer()]) for _ in range(3)] == [{}, {}, {}]
    answers.set()
    assert files._round is not None
    files._round.result()
    assert losses(files.news([script.writer()])) == [(1, 0.5)]


def tail_of(path: Path) -> Tail:
    about = path.stat()
    return Tail((str(path),), (about.st_dev, about.st_ino), 0)


def test_a_file_that_is_cut_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 50, "loss": 1.0}\n' * 3)
    tail = tail_of(path)
    assert len(tail.read()) == 3
    path.write_text('{"step": 1, "loss": 2.0}\n')
    assert tail.read() == [Sample("loss", 1, 2.0)]


def test_a_file_that_grows_faster_than_it_is_read_loses_its_middle(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    line = '{"step": 1, "loss": 1.0}\n'
    path.write_text(line * ((TOO_MUCH + 2 * MOST_BYTES) // len(line)) + '{"step": 2, "loss": 0.5}\n')
    tail = tail_of(path)
    assert Sample("loss", 2, 0.5) in [sample for _ in range(3) for sample in tail.read()]


def test_a_counter_that_begins_anew_with_each_epoch_only_grows(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("epoch,step,loss\n" + "".join(f"{e},{s},0.5\n" for e in range(3) for s in range(4)))
    assert [sample.step for sample in tail_of(path).read() if sample.name == "loss"] == list(range(12))


def test_another_file_in_its_place_is_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"loss": 1.0}\n')
    tail = tail_of(path)
    path.rename(tmp_path / "old.jsonl")
    path.write_text('{"loss": 2.0}\n')
    with pytest.raises(FileNotFoundError):
        tail.read()
