"""With diagd around it, whole or broken, a job does what it does without: same output, same end, same numbers.

The job says its losses and the checksum of all that it trained, so equal output means equal results.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.live.job import LiveJob
from tests.live.judge import by_weight, flaws, places

JOB = Path(__file__).with_name("harmless_job.py")
STEPS = 60  # the job's default
LIMIT_S = 120.0

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

# The user's own, which must run as ever; and the hand that breaks the probes, just after the bootstrap has loaded them.
SITECUSTOMIZE = """
import os, sys
MARK = "is the user's"

def explode(*arguments, **more):
    open(os.path.join(os.environ["TMPDIR"], "exploded"), "a").close()
    raise RuntimeError("broken on purpose")

def in_rank():
    return "diagd.probes.start" in sys.modules

def in_watch():
    return "diagd.daemon.watch.main" in sys.orig_argv

exec(os.environ.get("SABOTAGE", ""))
"""
# Half of the probes fail before what they watch, the other half after it.
BROKEN = """
if in_rank():
    import diagd.probes.guard as guard
    import diagd.probes.phases as phases
    whole = guard.around
    def around(probe, original, before, after, failed):
        if probe.name in ("collectives", "stores", "checkpoint"):
            return whole(probe, original, explode, after, failed)
        return whole(probe, original, before, explode, explode)
    guard.around = around
    phases.enter = explode
"""
OVER_BUDGET = """
if in_rank():
    import diagd.probes.cost as cost
    import diagd.probes.budget as budget
    cost.SHARE = cost.AIM = cost.LATER_AIM = 0.0
    cost._WINDOW_NS, cost._MIN_STEPS, cost._PATIENCE, budget.MAX_STRIDE = 0, 5, 1, 1
"""
FULL = """
if in_rank():
    def posix_fallocate(*arguments):
        open(os.path.join(os.environ["TMPDIR"], "exploded"), "a").close()
        raise OSError(28, "No space left on device")
    os.posix_fallocate = posix_fallocate
"""
# What py-spy says where ptrace is refused, as in most containers.
WITHOUT_PTRACE = """
if in_watch():
    import diagd.daemon.agent.pyspy as pyspy
    pyspy.program = lambda: os.path.join(os.path.dirname(os.path.abspath(__file__)), "py-spy")
"""
# As `diagd`, but with what stands on PYTHONPATH, which the command itself keeps from its own processes.
UNISOLATED = """
import sys
from diagd.daemon.cli import main
sys.exit(main(sys.argv[1:]))
"""
REFUSED = """#!/bin/sh
touch "$TMPDIR/exploded"
echo "Error: Permission Denied: Operation not permitted (os error 1)" >&2
exit 1
"""
# Otherwise gloo may find the addresses of dead ranks after a restart, and hang, with diagd or without.
FRESH_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
# /dev/shm is where this file is, below which nothing can be made.
WITHOUT_SHM = """
import sys
from pathlib import Path
import diagd.daemon.supervisor.place as place
place.find_place.__defaults__ = (Path({shm!r}),)
from diagd.daemon.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Done(NamedTuple):
    """A job that has ended."""

    exit_code: int | None
    stdout: str
    stderr: str
    report: dict[str, Any] | None
    exploded: bool

    def steps(self) -> list[int | None]:
        """As the report knows them, by rank."""
        return [rank["step"] for rank in (self.report or {"ranks": []})["ranks"]]

    def notes(self) -> str:
        """All that is said not to be watched."""
        return "\n".join((self.report or {}).get("notes", []))


def torchrun(*arguments: str, options: Sequence[str] = ()) -> list[str]:
    program = str(Path(sys.executable).with_name("torchrun"))
    return [program, "--standalone", "--nproc-per-node", "2", *options, JOB.name, *arguments]


def start(command: Sequence[str], site: Path, environ: Mapping[str, str] | None = None, **options: Any) -> LiveJob:
    return LiveJob(command, [JOB], environ={"PYTHONPATH": str(site), **(environ or {})}, **options)


def end(job: LiveJob) -> Done:
    code = job.finish(LIMIT_S)
    assert code is not None, f"the job hangs\n{job.tail()}"
    return Done(code, job.stdout, job.stderr, job.report(), (job.folder / "tmp/exploded").exists())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on PYTHONPATH, with the user's sitecustomize."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
    (folder / "py-spy").write_text(REFUSED, encoding="utf-8")
    (folder / "py-spy").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def plain(site: Path) -> Done:
    """The job as it is without diagd."""
    with start(torchrun(), site, flags=None) as job:
        done = end(job)
    assert done.exit_code == 0, done.stderr
    assert "checksums" in done.stdout
    assert "sitecustomize is the user's" in done.stdout
    return done


def assert_same(done: Done, plain: Done) -> None:
    """To the last bit, and without a word of diagd's own trouble in the job's output."""
    assert (done.exit_code, done.stdout) == (0, plain.stdout), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("environ", [{"DIAGD_DISABLE": "1"}, {"DIAGD_PROBES": "none"}], ids=["disabled", "none"])
def test_without_probes_the_job_is_the_same(site: Path, plain: Done, environ: dict[str, str]) -> None:
    with start(torchrun(), site, environ) as job:
        done = end(job)
    assert_same(done, plain)
    assert done.steps() == []


@pytest.mark.parametrize("sabotage", [BROKEN, FULL], ids=["broken", "full"])
def test_with_probes_that_fail_the_job_is_the_same(site: Path, plain: Done, sabotage: str) -> None:
    with start(torchrun(), site, {"SABOTAGE": sabotage}) as job:
        done = end(job)
    assert_same(done, plain)
    assert done.exploded, "nothing was broken"
    assert "broken on purpose" in done.notes() or "No space left" in done.notes() + done.stderr, "nobody says so"


def test_over_its_budget_the_job_is_the_same_and_what_is_left_out_is_said(site: Path, plain: Done) -> None:
    with start(torchrun(), site, {"SABOTAGE": OVER_BUDGET}) as job:
        done = end(job)
    assert_same(done, plain)
    assert done.steps() == [STEPS, STEPS]
    assert "left out to stay within the budget" in done.notes()


def test_two_jobs_on_one_machine_do_not_know_each_other(site: Path, plain: Done) -> None:
    with start(torchrun(), site) as one, start(torchrun(), site) as two:
        both = [end(one), end(two)]
    for done in both:
        assert_same(done, plain)
        assert done.steps() == [STEPS, STEPS]
        assert done.report is not None
        assert flaws(done.report, 2) == []
    pids = [rank["pid"] for done in both if done.report for rank in done.report["ranks"]]
    assert len(set(pids)) == 4


def test_a_compiled_model_trains_the_same(site: Path) -> None:
    with start(torchrun("--compile"), site, flags=None) as bare, start(torchrun("--compile"), site) as watched:
        without, done = end(bare), end(watched)
    assert without.exit_code == 0, without.stderr
    assert_same(done, without)
    assert done.steps() == [STEPS, STEPS]


def test_training_goes_on_when_the_watch_is_killed_and_the_report_still_comes(site: Path, plain: Done) -> None:
    with start(torchrun("--pace", "0.1"), site) as job:
        kill_watch(job)
        done = end(job)
    assert_same(done, plain)
    assert "the watch process ended (signal SIGKILL)" in done.stderr
    assert done.report is not None
    assert (flaws(done.report, 2), done.steps(), done.report["job"]["exit_code"]) == ([], [STEPS, STEPS], 0)


def test_a_watch_that_replaces_a_killed_one_finds_the_fault_and_the_next_one_keeps_it(site: Path) -> None:
    command = torchrun("--pace", "0.1", "--stall-at", "45")
    with start(command, site, flags=["--hang-after", "10"]) as job:
        kill_watch(job)
        job.until_said("dump      ")
        kill_watch(job)
        job.until(lambda: "anew, 2 times" in str((job.report() or {}).get("notes")), 30, "the third watch's report")
        before, seen_s = len(job.lines), time.time() + 12  # a wait that is not found is over in 2 s
        job.until(lambda: time.time() > seen_s, 20)
        job.process.send_signal(signal.SIGTERM)
        done = end(job)
    assert done.report is not None
    (hang,) = done.report["incidents"]
    told = [hang[key] for key in ("kind", "ranks", "state", "severity")]
    assert told == ["hang.rank_blocked", [1], "open", "critical"]
    assert "stall" in places(hang)
    assert "diagd: resolved" not in done.stderr
    assert not [line.text for line in job.lines[before:] if "hang.rank_blocked:" in line.text]
    assert done.stderr.count("it is started anew") == 2


def test_without_ptrace_the_place_is_still_found(site: Path) -> None:
    flags = ["--hang-after", "10", "--on-hang", "abort"]
    wrap = [sys.executable, "-c", UNISOLATED]
    with start(torchrun("--stall-at", "20"), site, {"SABOTAGE": WITHOUT_PTRACE}, flags=flags, wrap=wrap) as job:
        done = end(job)
    assert_stall_is_found(done)
    assert done.exploded, "nobody tried"


def test_without_shared_memory_the_boxes_lie_elsewhere(site: Path, plain: Done, tmp_path: Path) -> None:
    shm = tmp_path / "shm"
    shm.touch()
    with start(torchrun(), site, wrap=[sys.executable, "-c", WITHOUT_SHM.format(shm=str(shm))]) as job:
        job.until_said("step 0")
        boxes = [box for box in job.boxes() if job.folder in box.parents]
        done = end(job)
    assert len(boxes) == 2
    assert_same(done, plain)
    assert done.steps() == [STEPS, STEPS]


def test_a_job_that_its_launcher_restarts_succeeds_and_its_incident_is_resolved(site: Path, plain: Done) -> None:
    command = torchrun("--die-once-at", "30", options=["--max-restarts", "1"])
    with start(command, site, FRESH_STORE) as job:
        done = end(job)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith(plain.stdout)
    assert done.report is not None
    assert (flaws(done.report, 2), done.steps()) == ([], [STEPS, STEPS])
    assert [rank["attempt"] for rank in done.report["ranks"]] == [1, 1]
    top = by_weight(done.report["incidents"])[0]
    assert (top["kind"], top["ranks"], top["state"], top["attempt"]) == ("exit.killed", [1], "resolved", 0)
    assert all(incident["state"] == "resolved" for incident in done.report["incidents"])


def kill_watch(job: LiveJob) -> None:
    """Kill diagd's own process once the ranks train: it has seen them for a second by then."""
    job.until_said("step 10 ")
    pid = job.watch_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def assert_stall_is_found(done: Done) -> None:
    assert done.report is not None, done.stderr
    top = by_weight(done.report["incidents"])[0]
    assert (top["kind"], top["ranks"]) == ("hang.rank_blocked", [1]), done.stderr
    assert "stall" in places(top)
    assert (done.exit_code, flaws(done.report, 2)) == (86, [])
