"""The watch process: from the first look to the last report, what --on-hang does, and a watch that is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import jsonschema
import pytest
from tests.aggregator.fakes import FakeJudge, FakeObserver, Wanted, incident, wait_for

from diagd.daemon.aggregator.standalone import Aggregator
from diagd.daemon.aggregator.standalone import main as aggregator_main
from diagd.daemon.config.settings import AgentConfig, AggregatorConfig, Config
from diagd.daemon.detectors.finding import Severity
from diagd.daemon.record.record import RecordReader
from diagd.daemon.state.model import Exit, Status
from diagd.daemon.watch.main import Watch
from diagd.daemon.watch.options import Options, parse
from diagd.daemon.watch.parts import Parts
from diagd.daemon.watch.reports import Reports

SCHEMA = json.loads((Path(__file__).parents[1] / "contract/report.schema.json").read_text(encoding="utf-8"))
QUICK = Config(agent=AgentConfig(look_s=0.05, suspicious_look_s=0.05), aggregator=AggregatorConfig(tick_s=0.03))
ROOT = Path(__file__).parents[2]


@dataclass
class Supervisor:
    """The other end of the control channel, and all that a watch says."""

    run_dir: Path
    report_dir: Path
    judge: FakeJudge = field(default_factory=FakeJudge)
    observer: FakeObserver = field(default_factory=FakeObserver)
    said: list[str] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)
    dumps: list[Path] = field(default_factory=list)
    watch: Watch | None = None
    _ours: socket.socket | None = None
    _threads: list[threading.Thread] = field(default_factory=list)

    def take_dump(self, run_dir: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.dumps.append(folder)

    def start(self, **options: Any) -> Watch:
        self._ours, theirs = socket.socketpair()
        parts = Parts(
            make_observer=lambda run_dir, node: self.observer,
            make_judge=self.judge.make,
            verdict=lambda i: [f"{i.severity.value} {i.kind} {'open' if i.is_open else 'resolved'}"],
            write_html=lambda report, path: path.write_text("html"),
            take_dump=self.take_dump,
            write=self.said.append,
        )
        made = Options(
            run_dir=self.run_dir, job_id="job", node="n1", control_fd=theirs.detach(),
            **{"report_dir": self.report_dir, **options},
        )  # fmt: skip
        self.watch = Watch(made, QUICK, parts)
        self._threads = [threading.Thread(target=self.watch.run), threading.Thread(target=self._listen)]
        for thread in self._threads:
            thread.start()
        wait_for(lambda: self.message("ready"))
        self.tell({"job": {"pid": 1, "command": ["python", "t.py"], "started_s": 50.0}})
        return self.watch

    def tell(self, message: dict[str, Any]) -> None:
        assert self._ours is not None
        self._ours.sendall(json.dumps(message).encode() + b"\n")

    def message(self, name: str) -> Any:
        return next((m[name] for m in self.heard if name in m), None)

    def end(self, code: int = 0) -> dict[str, Any]:
        self.tell({"exited": {"code": code}})
        self.close(lambda: self.message("done"))
        return self.report()

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.report_dir / "report.json").read_text(encoding="utf-8"))
        jsonschema.validate(report, SCHEMA)
        return report

    def reported_dumps(self) -> list[str]:
        return [incident["dump"] for incident in self.report()["incidents"]]

    def close(self, condition: Callable[[], object] = lambda: True) -> None:
        with suppress(AssertionError):
            wait_for(condition)
        if self._ours is not None:
            with suppress(OSError):
                self._ours.shutdown(socket.SHUT_RDWR)
            for thread in self._threads:
                thread.join(10)
            self._ours.close()
            self._ours = None
        if self.watch is not None:
            self.watch.close()
            self.watch = None
        assert condition()

    def _listen(self) -> None:
        assert self._ours is not None
        with suppress(OSError), self._ours.makefile("rb") as lines:
            self.heard.extend(json.loads(line) for line in lines)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Supervisor]:
    (tmp_path / "run").mkdir()
    supervisor = Supervisor(tmp_path / "run", tmp_path / "report")
    yield supervisor
    supervisor.close()


def test_a_job_that_ends_well_leaves_a_report_of_its_ranks(job: Supervisor) -> None:
    job.start()
    wait_for(lambda: job.observer.looks > 2)
    for rank in (0, 1):
        job.observer.end(rank)
        job.observer.found[rank] = job.observer.found[rank].with_(exit=Exit(60.0, code=0))
    report = job.end(0)
    assert report["job"]["command"] == ["python", "t.py"]
    assert (report["job"]["started_at"], report["job"]["exit_code"]) == (50.0, 0)
    assert [(r["state"], r["exit"], r["node"]) for r in report["ranks"]] == [("exited", "0", "n1")] * 2
    assert (job.report_dir / "report.html").read_text() == "html"
    assert job.said == []
    assert report["final"]


def test_dumps_beside_an_earlier_runs_have_names_of_their_own(job: Supervisor) -> None:
    job.start(dump_prefix="run2-")
    wait_for(lambda: job.observer.looks > 1)
    job.judge.findings = [incident()]
    wait_for(lambda: job.dumps)
    assert job.dumps == [job.report_dir / "dumps/run2-001-abc"]
    wait_for(lambda: job.reported_dumps() == ["dumps/run2-001-abc"])


def test_the_addresses_answer_while_the_job_runs(job: Supervisor) -> None:
    job.start()
    http = job.message("ready")["http"]
    targets = json.loads((job.run_dir / "prometheus.json").read_text())
    assert targets == [{"targets": [http]}]
    wait_for(lambda: b'diagd_rank_step{job_id="job",rank="1",node="n1"} 7' in urlopen(f"http://{http}/metrics").read())
    host, _, port = job.message("ready")["grpc"].partition(":")
    socket.create_connection((host, int(port))).close()


def test_a_hang_is_said_once_dumped_and_reported_at_once(job: Supervisor) -> None:
    job.start()
    wait_for(lambda: job.observer.looks > 1)
    job.judge.findings = [incident()]
    wait_for(lambda: job.dumps and len(job.said) == 2)
    assert job.said == ["critical hang.rank_blocked open\n", f"       dump      {job.report_dir}/dumps/001-abc\n"]
    assert job.dumps == [job.report_dir / "dumps/001-abc"]
    wait_for(lambda: job.reported_dumps() == ["dumps/001-abc"])
    assert json.loads((job.dumps[0] / "job.json").read_text()) == {"hang_after_s": 60.0}
    assert job.message("abort") is None
    job.judge.findings[0].resolved_s = 160.0
    job.judge.findings[0].severity = Severity.WARNING
    wait_for(lambda: len(job.said) == 3)
    assert job.end(0)["incidents"][0]["state"] == "resolved"
    assert job.said[2] == "warning hang.rank_blocked resolved\n"


def test_abort_comes_after_the_dump(job: Supervisor) -> None:
    job.start(on_hang="abort")
    job.judge.findings = [incident()]
    wait_for(lambda: job.message("abort"))
    assert job.message("abort") == {"incident": "001-abc", "summary": "rank 1 is blocked in read()."}
    assert job.dumps
    job.end(86)
    assert len([m for m in job.heard if "abort" in m]) == 1


def test_restart_names_the_culprits_process(job: Supervisor) -> None:
    job.start(on_hang="restart")
    wait_for(lambda: job.observer.looks > 1)
    job.judge.findings = [incident(ranks=(1,))]
    wait_for(lambda: job.message("restart"))
    assert job.message("restart") == {"pid": 1001, "rank": 1, "incident": "001-abc"}


def test_restart_ends_a_waiting_rank_where_the_culprit_is_gone(job: Supervisor) -> None:
    job.observer.end(1, Status.KILLED)
    job.start(on_hang="restart")
    wait_for(lambda: job.observer.looks > 1)
    job.judge.findings = [incident(ranks=(1,), waiting_ranks=(0,))]
    wait_for(lambda: job.message("restart"))
    assert job.message("restart")["rank"] == 0


def test_a_rank_in_a_debugger_is_dumped_but_the_job_is_left_alone(job: Supervisor) -> None:
    job.observer.found[1] = job.observer.found[1].with_(debugger="pdb")
    job.start(on_hang="abort")
    wait_for(lambda: job.observer.looks > 1)
    job.judge.findings = [incident(ranks=(1,))]
    wait_for(lambda: job.dumps)
    job.end(0)
    assert job.message("abort") is None


@pytest.mark.parametrize(
    "harmless",
    [incident(severity=Severity.WARNING), incident(kind="exit.error"), incident(kind="memory.host_leak")],
)
def test_what_is_no_hang_ends_no_job(job: Supervisor, harmless: Any) -> None:
    harmless.opened_s = time.time()
    job.start(on_hang="abort", hang_after_s=0.1)
    job.judge.findings = [harmless]
    wait_for(lambda: job.said)
    job.end(1)
    assert job.message("abort") is None
    assert job.dumps == []


def test_nothing_is_done_about_ranks_that_are_gone(job: Supervisor) -> None:
    for rank in (0, 1):
        job.observer.end(rank, Status.KILLED)
    job.start(on_hang="abort")
    wait_for(lambda: job.observer.looks > 1)
    job.judge.findings = [incident()]
    wait_for(lambda: job.said)
    job.end(1)
    assert (job.dumps, job.message("abort")) == ([], None)


def test_a_dump_that_fails_does_not_keep_the_job_from_being_ended(job: Supervisor) -> None:
    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    watch = job.start(on_hang="abort")
    watch.policy.take_dump = full
    job.judge.findings = [incident()]
    wait_for(lambda: job.message("abort"))
    assert job.end(86)["incidents"][0]["dump"] is None


def test_where_the_folder_takes_no_report_what_it_would_say_is_left_in_the_run_directory(
    job: Supervisor, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    job.start(report_dir=tmp_path / "file" / "report")
    wait_for(lambda: job.observer.looks > 2)
    job.tell({"exited": {"code": 3}})
    job.close(lambda: job.message("done"))
    left = json.loads((job.run_dir / "report.json").read_text(encoding="utf-8"))
    assert (left["job"]["exit_code"], len(left["ranks"])) == (3, 2)
    assert sum("cannot be written" in line for line in job.said) == 1


def test_the_supervisors_death_ends_the_watch_with_a_report(job: Supervisor) -> None:
    job.start()
    wait_for(lambda: job.observer.looks > 2)
    job.close()
    assert job.report()["job"]["ended_at"] is None
    assert not job.report()["final"]


def test_a_report_of_a_job_that_runs_is_not_the_last_one(job: Supervisor) -> None:
    job.start()
    wait_for(lambda: (job.report_dir / "report.json").exists())
    assert not job.report()["final"]


def test_what_ended_the_command_before_any_rank_is_in_its_report(tmp_path: Path) -> None:
    died = {"pid": 7, "parent": 1, "rank": "", "error": "SyntaxError", "message": "no", "place": "", "at_ns": 1}
    (tmp_path / "7.died").write_text(json.dumps(died))
    for code, ranks, notes in ((1, 0, 1), (0, 0, 0), (1, 2, 0)):
        written = {"job": {"exit_code": code}, "ranks": list(range(ranks)), "notes": []}
        Reports(tmp_path, lambda report, path: None, print).write(tmp_path, written, final=True)
        assert len(json.loads((tmp_path / "report.json").read_text())["notes"]) == notes


def test_on_a_full_disk_an_old_page_makes_room_for_what_programs_read(tmp_path: Path) -> None:
    def page(report: dict[str, Any], path: Path) -> None:
        if report["final"]:
            assert path.exists()
            raise OSError(28, "No space left on device")
        path.write_text("old")

    said: list[str] = []
    reports = Reports(tmp_path / "run", page, said.append)
    (tmp_path / "run").mkdir()
    for final in (False, True):
        report = {"job": {"exit_code": 0}, "ranks": [1], "notes": [], "final": final}
        reports.write(tmp_path, report, final=final)
    assert json.loads((tmp_path / "report.json").read_text())["final"]
    assert not (tmp_path / "report.html").exists()
    assert len(said) == 1


def test_sigterm_ends_the_watch(job: Supervisor) -> None:
    watch = job.start()
    watch.stop()
    job.close(lambda: job.message("done"))


def test_a_watch_that_takes_over_goes_on_with_what_the_first_one_found(job: Supervisor) -> None:
    job.start()
    wait_for(lambda: job.observer.looks > 1)
    job.judge.findings = [incident()]
    wait_for(lambda: job.dumps and len(job.said) == 2)
    job.close()
    job.start(on_hang="abort")
    wait_for(lambda: job.message("abort"))
    report = job.end(86)
    assert [(i["id"], i["state"], i["dump"]) for i in report["incidents"]] == [("001-abc", "open", "dumps/001-abc")]
    assert len(job.dumps) == 1
    assert len(job.said) == 2


def test_a_run_is_recorded_from_its_first_to_its_last_input(job: Supervisor, tmp_path: Path) -> None:
    job.start(record=tmp_path / "record")
    wait_for(lambda: job.observer.looks > 2)
    job.end(5)
    entries = list(RecordReader(tmp_path / "record"))
    kinds = [e.WhichOneof("input") for e in entries]
    assert "started" in kinds
    assert kinds[-1] == "ended"
    assert entries[-1].ended.exit_code == 5
    assert any(e.request.HasField("window") for e in entries)


def test_a_record_file_that_is_something_else_is_left_alone_and_said(job: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "record").write_text("a thesis")
    job.start(record=tmp_path / "record")
    job.end(0)
    assert (tmp_path / "record").read_text() == "a thesis"
    assert "not recorded" in job.said[0]


def test_half_a_line_on_the_channel_is_no_harm(job: Supervisor) -> None:
    watch = job.start()
    assert job._ours is not None
    job._ours.sendall(b'{"exited": {"co\n[1, 2]\n{"exi')
    time.sleep(0.1)
    assert not watch.control.closed
    job._ours.sendall(b'ted": {"code": 0}}\n')
    job.close(lambda: job.message("done"))


def test_deep_looks_reach_the_observer(job: Supervisor) -> None:
    job.judge.wanted = Wanted(stacks=(0, 1), history=(0, 1))
    job.start()
    wait_for(lambda: job.observer.deep_looks)
    assert job.observer.deep_looks[0] == ((0, 1), True, False, True)


def test_with_an_aggregator_elsewhere_verdicts_come_from_there(job: Supervisor, tmp_path: Path) -> None:
    judge = FakeJudge()
    config = AggregatorConfig(grpc_port=0, http_port=0, store=str(tmp_path / "a.sqlite"), report_dir=str(tmp_path))
    aggregator, stop = Aggregator(config, make_judge=judge.make), threading.Event()
    aggregator.start()
    thread = threading.Thread(target=aggregator.run, args=(stop,))
    thread.start()
    try:
        job.start(aggregator=aggregator.grpc.address, on_hang="abort")
        wait_for(lambda: aggregator.hub.loops() and aggregator.hub.loops()[0].state.ranks() == [0, 1])
        judge.findings = [incident()]
        wait_for(lambda: job.message("abort"))
        assert job.said[0] == "critical hang.rank_blocked open\n"
        report = job.end(86)
        assert report["incidents"][0]["dump"] == "dumps/001-abc"
        assert report["job"]["command"] == ["python", "t.py"]
        assert report["job"]["ended_at"] is not None
        wait_for(lambda: aggregator.hub.loops()[0].state.ended_s)
        assert aggregator.hub.loops()[0].state.exit_code == 86
        wait_for(lambda: (tmp_path / "job/report.json").exists())
    finally:
        stop.set()
        thread.join()
        aggregator.close()


def test_an_aggregator_that_cannot_be_reached_disturbs_nothing(job: Supervisor) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        job.start(aggregator=address)
        wait_for(lambda: job.observer.looks > 2)
        job.observer.end(1)
        job.observer.found[1] = job.observer.found[1].with_(exit=Exit(60.0, code=3))
        report = job.end(3)
    assert (report["judged"], report["incidents"]) == (False, [])
    assert report["notes"][0] == f"the aggregator {address} was never reached; nothing was judged"
    assert (report["job"]["exit_code"], report["job"]["command"]) == (3, ["python", "t.py"])
    assert [(rank["rank"], rank["exit"]) for rank in report["ranks"]] == [(0, None), (1, "3")]
    assert (job.report_dir / "report.html").exists()


def test_an_aggregator_that_is_lost_leaves_its_last_report_and_a_note(job: Supervisor, tmp_path: Path) -> None:
    config = AggregatorConfig(grpc_port=0, http_port=0, store=str(tmp_path / "a.sqlite"))
    aggregator, stop = Aggregator(config, make_judge=FakeJudge().make), threading.Event()
    aggregator.start()
    thread = threading.Thread(target=aggregator.run, args=(stop,))
    thread.start()
    job.start(aggregator=aggregator.grpc.address)
    wait_for(lambda: (job.report_dir / "report.json").exists() and len(job.report()["ranks"]) == 2)
    stop.set()
    thread.join()
    aggregator.close()
    report = job.end(0)
    assert [note for note in report["notes"] if "did not take the last look" in note]
    assert len(report["ranks"]) == 2


def test_the_command_line_is_the_supervisors() -> None:
    words = "--run-dir /r --job-id j --report none --hang-after 12.5 --on-hang abort --aggregator none --record none"
    options = parse([*words.split(), "--control-fd", "7"])
    assert (options.report_dir, options.aggregator, options.record) == (None, None, None)
    assert (options.hang_after_s, options.on_hang, options.control_fd) == (12.5, "abort", 7)


def test_an_aggregators_port_in_use_is_said_with_a_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for option in ("--grpc-port", "--http-port"):
            other = "--http-port" if option == "--grpc-port" else "--grpc-port"
            code = aggregator_main([option, port, other, "0", "--store", str(tmp_path / "s")], FakeJudge().make)
            said = capsys.readouterr().err
            assert code == 85
            assert f"127.0.0.1:{port}" in said
            assert "ss -ltnp" in said
            assert "Traceback" not in said


def test_the_real_process_starts_watches_an_empty_directory_and_ends(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", "diagd.daemon.watch.main", "--run-dir", str(tmp_path), "--job-id", "j",
                   "--report", str(tmp_path / "report"), "--control-fd", str(theirs.fileno())]  # fmt: skip
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / room) for room in ("daemon", "probes", "proto"))}
        watch = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env, stderr=subprocess.PIPE, text=True)
        theirs.close()
        lines = ours.makefile("r")
        assert "ready" in json.loads(lines.readline())
        ours.sendall(b'{"job": {"pid": 1, "command": ["x"], "started_s": 1.0}}\n{"exited": {"code": 4}}\n')
        assert json.loads(lines.readline()) == {"done": True}
        lines.close()
        _, said = watch.communicate(timeout=20)
    assert (watch.returncode, said) == (0, "")
    report = json.loads((tmp_path / "report/report.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert report["job"]["exit_code"] == 4


def test_a_watch_that_was_killed_leaves_a_store_that_the_next_one_reads(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", "diagd.daemon.watch.main", "--run-dir", str(tmp_path), "--job-id", "j",
                   "--control-fd", str(theirs.fileno())]  # fmt: skip
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / room) for room in ("daemon", "probes", "proto"))}
        for _ in range(2):
            watch = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env)
            assert b"ready" in ours.recv(4096)
            watch.send_signal(signal.SIGKILL)
            assert watch.wait(timeout=10) == -signal.SIGKILL
