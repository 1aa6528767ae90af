"""`diagd top` on a real pseudo-terminal: a real job of `diagd run`, whose ranks are stand-ins without torch."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.aggregator.fakes import FakeJudge, incident, rank_facts
from tests.cli.terminal import Terminal

from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.web import WebServer
from diagd.daemon.state.model import Detail

DIAGD = [sys.executable, "-m", "diagd.daemon.cli"]
STAND_IN = Path(__file__).parents[1] / "agent/stand_in_rank.py"
COLOUR = re.compile(rb"\x1b\[(?:\d+;)*3[0-7](?:;\d+)*m")
SIZE = 1024


class Job:
    """A job of three ranks that wait until they are told to go on, and then end."""

    def __init__(self, folder: Path) -> None:
        self.name = f"top-{os.getpid()}-{folder.name[-8:]}"
        gates = [folder / f"gate{rank}" for rank in range(3)]
        for gate in gates:
            os.mkfifo(gate)
        self._gates = [os.open(gate, os.O_RDWR) for gate in gates]
        rank = f'"{sys.executable}" "{STAND_IN}" "$DIAGD_DIR" $rank exit:0 < "{folder}/gate$rank" &'
        script = f"for rank in 0 1 2; do {rank} done; wait; exit 3"
        self.process = subprocess.Popen(
            [*DIAGD, "run", "--job-id", self.name, "--report", str(folder / "report"), "--", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert [self.process.stdout.readline() for _ in range(3)] == ["ready\n"] * 3

    def go_on(self) -> None:
        """Let the ranks end."""
        for gate in self._gates:
            os.write(gate, b"\n")

    def close(self) -> None:
        """End it."""
        self.go_on()
        self.process.communicate(timeout=60)
        for gate in self._gates:
            os.close(gate)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    running = Job(tmp_path_factory.mktemp("job"))
    with looking(running):  # until all its ranks have reported
        pass
    yield running
    running.close()


@contextmanager
def top(*words: str, cwd: Path | None = None, width: int = 100, height: int = 30, **environ: str) -> Iterator[Terminal]:
    terminal = Terminal([*DIAGD, "top", *words], width, height, cwd, **environ)
    try:
        yield terminal
    finally:
        terminal.close()


@contextmanager
def looking(job: Job, cwd: Path | None = None, interval: str = "0.2", **environ: Any) -> Iterator[Terminal]:
    with top("--job", job.name, "--interval", interval, cwd=cwd, **environ) as terminal:
        terminal.wait(lambda: "rank 0:" in terminal.text and "3 ranks of 8" in terminal.lines[0])
        yield terminal


def test_a_person_looks_around_and_leaves(job: Job, tmp_path: Path) -> None:
    with looking(job, tmp_path) as terminal:
        assert f"job {job.name}" in terminal.lines[0]
        assert [line.split()[0] for line in terminal.lines[4:12]] == [str(n) for n in range(8)]
        terminal.press("j\x1bOB")
        terminal.wait(lambda: "rank 2:" in terminal.text)
        terminal.press("\r")
        terminal.wait(lambda: "stacks of rank 2 at" in terminal.lines[0] and "stand_in_rank.py" in terminal.text)
        terminal.press("q/1\r")
        terminal.wait(lambda: "rank 1:" in terminal.text)
        terminal.press("o")
        terminal.wait(lambda: "GROUP" in terminal.text and "0-7" in terminal.text)
        terminal.press("\x1b")
        terminal.wait(lambda: "rank 1:" in terminal.text)
        terminal.press("q")
        assert (terminal.end(), terminal.restored) == (0, True)


def test_the_window_may_change_its_size(job: Job) -> None:
    with looking(job, interval="600") as terminal:
        for width, height in ((50, 10), (140, 40), (8, 2), (100, 30)):
            terminal.resize(width, height)
            terminal.wait(
                lambda width=width: (
                    terminal.lines[0].startswith(f"job {job.name}"[: width - 1])  # type: ignore[misc]
                    and (width < 10 or "RANK  STATE" in terminal.text)
                    and terminal.lines[-1]
                )
            )
        terminal.press("q")
        assert (terminal.end(), terminal.restored) == (0, True)


def test_a_dump_is_written_while_one_looks_on(job: Job, tmp_path: Path) -> None:
    with looking(job, tmp_path) as terminal:
        terminal.press("d")
        terminal.wait(lambda: "dump of 3 ranks" in terminal.text)
        terminal.press("q")
        assert terminal.end() == 0
        (folder,) = tmp_path.glob("diagd-dump-*")
        assert (folder / "rank1/stacks.txt").is_file()
        assert folder.name in terminal.text


def test_leaving_waits_for_a_dump_that_has_begun(job: Job, tmp_path: Path) -> None:
    with looking(job, tmp_path) as terminal:
        terminal.press("dq")
        assert (terminal.end(), terminal.restored) == (0, True)
        (folder,) = tmp_path.glob("diagd-dump-*")
        assert (folder / "summary.txt").is_file()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGHUP, -1)])
def test_a_signal_leaves_the_terminal_as_it_was(job: Job, number: signal.Signals, code: int) -> None:
    with looking(job) as terminal:
        if number is signal.SIGINT:
            terminal.press("\x03")
        else:
            terminal.process.send_signal(number)
        assert (terminal.end(), terminal.restored) == (code, True)
        assert "Traceback" not in terminal.text


def test_there_is_colour_unless_it_is_unwanted(job: Job) -> None:
    with looking(job) as terminal:
        assert COLOUR.search(terminal.raw)
        terminal.press("q")
        terminal.end()
    with looking(job, NO_COLOR="1") as terminal:
        assert not COLOUR.search(terminal.raw)
        terminal.press("q")
        assert (terminal.end(), terminal.restored) == (0, True)


def test_off_a_terminal_it_is_one_look_in_plain_text(job: Job) -> None:
    done = subprocess.run([*DIAGD, "top", "--job", job.name], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=True, timeout=60, env={**os.environ, "COLUMNS": "90"})  # fmt: skip
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"job {job.name}")
    assert [line.split()[0] for line in lines[3:]] == [str(n) for n in range(8)]
    assert max(map(len, lines)) <= 90


def test_one_look_on_a_terminal_takes_nothing_of_it(job: Job) -> None:
    with top("--job", job.name, "--once") as terminal:
        assert terminal.end() == 0
        assert b"\x1b" not in terminal.raw
        assert "RANK  STATE" in terminal.text


@pytest.mark.parametrize("term", ["dumb", "no-such-terminal", ""])
def test_a_terminal_that_cannot_be_drawn_on_gets_one_look_and_the_reason(job: Job, term: str) -> None:
    with top("--job", job.name, TERM=term) as terminal:
        assert terminal.end() == 0
        assert f"diagd: one look only: TERM={term}:" in terminal.text
        assert "RANK  STATE" in terminal.text


def test_without_a_running_job_it_says_so_and_leaves_the_terminal_alone() -> None:
    with top("--job", "no-such-job") as terminal:
        assert terminal.end() == 4
        assert "diagd: no running job is called no-such-job" in terminal.text
        assert b"\x1b" not in terminal.raw


def test_a_job_that_ends_is_said_with_its_exit_code(tmp_path: Path) -> None:
    job = Job(tmp_path)
    try:
        with looking(job) as terminal:
            job.go_on()
            assert (terminal.end(), terminal.restored) == (0, True)
            assert f"diagd: job {job.name} has ended with exit code 3" in terminal.text
            assert "3 ranks, no training step seen" in terminal.text
    finally:
        job.close()


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Hub]:
    """A job of 1,024 ranks that a watch serves, with a run directory that names it."""
    hub = Hub(time.time)
    loop = JobLoop("many", FakeJudge(findings=[incident(ranks=(513,), waiting_ranks=(0,))]).make())
    hub.add(loop)
    details = [Detail(n, host=f"node{n // 8:03}", node=f"node{n // 8:03}", pid=10**6 + n) for n in range(SIZE)]
    loop.state.apply([rank_facts(n) for n in range(SIZE)], details, time.time())
    hub.tick()
    server = WebServer(hub, "127.0.0.1", 0)
    run_dir = tmp_path / f"diagd-{os.getuid()}/many"
    run_dir.mkdir(parents=True)
    run = {"job_id": "many", "http": server.start(), "supervisor_pid": os.getpid(), "exit_code": None}
    (run_dir / "run.json").write_text(json.dumps(run))
    yield hub
    server.stop()


def test_a_thousand_ranks_are_walked_through(many: Hub, tmp_path: Path) -> None:
    with top("--job", "many", width=80, height=24, TMPDIR=str(tmp_path)) as terminal:
        terminal.wait(lambda: "1024 ranks" in terminal.lines[0] and "rank 0:" in terminal.text)
        assert [int(line.split()[0]) for line in terminal.lines[3:19]] == list(range(0, SIZE, 64))
        terminal.press("n")
        terminal.wait(lambda: "rank 513:" in terminal.text)
        terminal.press("/1000\r")
        terminal.wait(lambda: "rank 1000:" in terminal.text and "node125" in terminal.text)
        terminal.press("s")
        terminal.wait(lambda: "cannot be read here: it runs on node125" in terminal.text)
        terminal.press("qt")
        terminal.wait(lambda: "RANK  STATE" in terminal.text and " 1000  running" in terminal.text)
        terminal.press("\x1b[5~")
        terminal.wait(lambda: " 984  running" in terminal.text)
        terminal.press("q")
        assert (terminal.end(), terminal.restored) == (0, True)


def test_a_watch_that_falls_silent_does_not_end_the_view(many: Hub, tmp_path: Path) -> None:
    with top("--job", "many", "--interval", "0.1", TMPDIR=str(tmp_path)) as terminal:
        terminal.wait(lambda: "1024 ranks" in terminal.lines[0])
        run = tmp_path / f"diagd-{os.getuid()}/many/run.json"
        facts = json.loads(run.read_text())
        run.write_text(json.dumps({**facts, "http": "127.0.0.1:9"}))
        terminal.wait(lambda: "the watch does not answer" in terminal.lines[0])
        run.write_text(json.dumps(facts))
        terminal.wait(lambda: "1024 ranks" in terminal.lines[0])
        terminal.press("q")
        assert terminal.end() == 0


def test_only_what_has_changed_is_drawn(many: Hub, tmp_path: Path) -> None:
    with top("--job", "many", "--interval", "0.1", width=80, height=24, TMPDIR=str(tmp_path)) as terminal:
        terminal.wait(lambda: "rank 0:" in terminal.text)
        terminal.read(0.3)
        before = len(terminal.raw)
        terminal.press("l")
        terminal.wait(lambda: "rank 1:" in terminal.text)
        assert len(terminal.raw) - before < 1000  # a whole window takes 1,900 and more
        with many.lock:
            many.find("many").state.columns.step[5] = 6
        terminal.wait(lambda: "steps 6-7" in terminal.lines[0])
        terminal.press("q")
        terminal.end()
