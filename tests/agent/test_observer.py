"""The observer on real processes that hang in different ways."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.builders import StandIn, box, process, stand_ins, until

from diagd.daemon.agent import pyspy, stacks
from diagd.daemon.agent.observer import Observer
from diagd.daemon.agent.procfs import Call, Procfs
from diagd.daemon.agent.snapshot import RankWatch, _reads_terminal, digest
from diagd.daemon.state.model import Detail, Facts, Frame, Status
from diagd.probes.box import layout
from diagd.probes.box.layout import Live


@pytest.fixture
def observer(tmp_path: Path) -> Iterator[Observer]:
    found = Observer(tmp_path, "node-1")
    yield found
    found.close()


def facts_of(observer: Observer, rank: int = 0, now_s: float | None = None) -> Facts:
    return {facts.rank: facts for facts in observer.look(now_s)}[rank]


def functions(detail: Detail) -> list[str]:
    assert detail.stack is not None
    assert detail.stack.main is not None, detail.stack.note
    return [frame.function for frame in detail.stack.main.frames]


def kernel_state(rank: StandIn) -> str:
    return Path(f"/proc/{rank.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def test_a_rank_in_a_collective_is_blocked_and_shows_its_stack(tmp_path: Path, observer: Observer) -> None:
    with stand_ins(tmp_path, "wait"):
        until(lambda: facts_of(observer).wait_s)
        now_s = time.time()
        assert facts_of(observer, now_s=now_s).status == Status.RUNNING
        facts = facts_of(observer, now_s=now_s + 3)
        assert (facts.status, facts.main_state) == (Status.BLOCKED, "S")
        (detail,) = observer.deep([0])
        assert detail.stack is not None
        assert (detail.node, detail.stack.source, detail.stack.syscall) == ("node-1", "py-spy", "futex")
        assert "wait_in_all_reduce" in functions(detail)
        assert [op.name for op in detail.operations] == [op.name for op in detail.history] == ["ALLREDUCE"]
        assert [name for _, name in detail.looks] == [digest(detail.stack.main.frames)] if detail.stack.main else False
        assert detail.notes == ("no flight recorder: the worker server cannot be reached: No such file or directory",)


def test_a_look_does_not_pass_for_progress(tmp_path: Path, observer: Observer) -> None:
    with stand_ins(tmp_path, "wait"):
        until(lambda: facts_of(observer).wait_s)
        before = facts_of(observer)
        for _ in range(3):
            observer.deep([0])
        after = facts_of(observer)
        assert after.io_bytes == before.io_bytes
        assert after.main_cpu_s - before.main_cpu_s < 0.005


def test_a_rank_that_holds_the_gil_still_shows_where_and_that_it_does(tmp_path: Path, observer: Observer) -> None:
    with stand_ins(tmp_path, "gil"):
        until(lambda: facts_of(observer).main_cpu_s > 0.5)
        until(lambda: time.time() - facts_of(observer).heartbeat_s > 1.6)
        (detail,) = observer.deep([0])
        assert "hold_the_gil" in functions(detail)
        main = detail.stack.main if detail.stack else None
        assert main is not None
        assert main.holds_gil
        assert facts_of(observer).status == Status.RUNNING


def test_a_stopped_rank_is_read_without_a_signal(tmp_path: Path, observer: Observer) -> None:
    with stand_ins(tmp_path, "wait") as (rank,):
        until(lambda: facts_of(observer).wait_s)
        os.kill(rank.pid, signal.SIGSTOP)
        until(lambda: kernel_state(rank) == "T")
        assert facts_of(observer).status == Status.STOPPED
        (detail,) = observer.deep([0])
        assert "wait_in_all_reduce" in functions(detail)
        assert detail.stack is not None
        assert (detail.stack.state, detail.stack.source) == ("T", "py-spy")
        assert "no flight recorder: the process is stopped" in detail.notes
        assert not (tmp_path / f"{rank.pid}.stacks").read_bytes()
        os.kill(rank.pid, signal.SIGCONT)
        until(lambda: kernel_state(rank) != "T")
        assert facts_of(observer).status != Status.STOPPED
        (detail,) = observer.deep([0], stacks=False, recorder=False)
        assert "no flight recorder: the process is stopped" not in detail.notes


def test_a_rank_that_blocks_in_open_names_the_file(tmp_path: Path, observer: Observer) -> None:
    with stand_ins(tmp_path, "fifo"):
        until(lambda: (tmp_path / "fifo").exists())
        now_s = time.time()
        facts_of(observer, now_s=now_s)
        assert facts_of(observer, now_s=now_s + 3).status == Status.BLOCKED
        (detail,) = observer.deep([0])
        assert detail.stack is not None
        assert detail.stack.syscall in ("openat", "open")
        assert str(tmp_path / "fifo") in detail.stack.note
        assert "open_fifo" in functions(detail)


def test_a_rank_without_faulthandler_is_never_signalled(tmp_path: Path, observer: Observer) -> None:
    with stand_ins(tmp_path, "unarmed") as (rank,):
        until(lambda: facts_of(observer).wait_s)
        (detail,) = observer.deep([0])
        assert detail.stack is not None
        assert detail.stack.source == "py-spy"
        assert rank.process.poll() is None


def test_without_permission_the_note_says_what_to_allow(
    tmp_path: Path, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Procfs, "may_trace", lambda self, pid: False)
    with stand_ins(tmp_path, "unarmed", "wait"):
        until(lambda: all(facts.wait_s for facts in observer.look()))
        unarmed, armed = observer.deep(recorder=False)
        assert "wait_in_all_reduce" in functions(armed)
        assert armed.notes == ()
        assert unarmed.stack is not None
        assert unarmed.stack.threads == ()
        assert unarmed.notes == (f"no stack: {pyspy.NO_PERMISSION}",)


def test_a_stuck_data_worker_shows_its_own_line(tmp_path: Path, observer: Observer) -> None:
    with stand_ins(tmp_path, "loader"):
        observer.look()
        until(lambda: (tmp_path / "fifo").exists(), limit_s=60)
        until(lambda: any(stack.syscall == "openat" for stack in observer.deep([0], recorder=False)[0].stacks))
        (detail,) = observer.deep([0], recorder=False)
        worker = next(stack for stack in detail.stacks if stack.role == "worker")
        assert worker.main is not None
        assert [frame.function for frame in worker.main.user_frames] == ["open_fifo", "__getitem__"]
        assert str(tmp_path / "fifo") in worker.note
        assert [child.in_data_loader for child in detail.children if child.pid == worker.pid] == [True]
        assert "wait" in functions(detail)  # the rank itself, for its worker


@pytest.mark.parametrize(("does", "held_by"), [("prompt", "prompt"), ("pdb", "pdb")])
def test_a_rank_that_a_person_holds_says_so(tmp_path: Path, observer: Observer, does: str, held_by: str) -> None:
    terminal, inner = os.openpty()
    rank = StandIn(tmp_path, 0, does, stdin=inner)
    try:
        os.write(terminal, b"go\n")
        observer.look()
        # Between the stack and the system call it may have gone on from the one to the other.
        until(lambda: observer.deep([0], recorder=False)[0].debugger == held_by)
        assert observer.details()[0].debugger == held_by
    finally:
        rank.end()
        os.close(terminal)
        os.close(inner)


@pytest.mark.parametrize(("tracer", "held_by"), [("gdb", "ptrace by 9"), ("py-spy", ""), ("pystack", "")])
def test_a_foreign_tracer_holds_the_rank_and_a_stack_reader_does_not(tmp_path: Path, tracer: str, held_by: str) -> None:
    (tmp_path / "run").mkdir()
    box(tmp_path / "run", pid=70, start=5)
    process(tmp_path / "proc", 70, start=5, tracer=9, state="t")
    process(tmp_path / "proc", 9, name=tracer)
    observer = Observer(tmp_path / "run", proc=Procfs(tmp_path / "proc"))
    try:
        assert facts_of(observer).status == (Status.STOPPED if held_by else Status.RUNNING)
        assert observer.deep([0], recorder=False)[0].debugger == held_by
    finally:
        observer.close()


@pytest.mark.parametrize(
    ("parent", "launcher", "held_by"),
    [
        (70, "sh", ""),  # of the rank
        (40, "python3", ""),  # of the launcher
        (40, "sh", "ptrace by 9"),  # from the shell in which the job was started
        (41, "python3", "ptrace by 9"),
    ],
)
def test_a_tracer_that_the_job_has_started_is_no_person(
    tmp_path: Path, parent: int, launcher: str, held_by: str
) -> None:
    (tmp_path / "run").mkdir()
    box(tmp_path / "run", pid=70, start=5)
    process(tmp_path / "proc", 40, name=launcher, command=(f"/usr/bin/{launcher}", "-m", "torch.distributed.run"))
    process(tmp_path / "proc", 41, name="sh")
    process(tmp_path / "proc", 70, start=5, tracer=9, state="t", parent=40)
    process(tmp_path / "proc", 9, name="python3", parent=parent)
    observer = Observer(tmp_path / "run", proc=Procfs(tmp_path / "proc"))
    try:
        assert facts_of(observer).status == Status.STOPPED
        assert observer.deep([0], recorder=False)[0].debugger == held_by
    finally:
        observer.close()


def test_a_forked_child_shows_its_own_stack(tmp_path: Path, observer: Observer) -> None:
    with stand_ins(tmp_path, "fork") as (rank,):
        observer.look()
        until(lambda: observer.deep([0])[0].children)
        (child,) = observer.details()[0].children
        own = stacks.take(stacks.Target(rank.pid), observer._proc)
        theirs = stacks.take(stacks.Target(child.pid, "child"), observer._proc)
        assert own.main is not None
        assert theirs.main is not None
        assert own.main.frames[0].line != theirs.main.frames[0].line
        os.kill(child.pid, signal.SIGKILL)
        until(lambda: observer.deep([0])[0].children[0].exit)
        assert observer.details()[0].children[0].exit in ("SIGKILL", "gone")


@pytest.mark.parametrize(("does", "code"), [("exit:3", 3), ("exit:0", 0)])
def test_an_exit_is_known_with_its_code(tmp_path: Path, observer: Observer, does: str, code: int) -> None:
    rank = StandIn(tmp_path, 0, does)
    try:
        assert facts_of(observer).status == Status.RUNNING
        rank.go()
        until(lambda: facts_of(observer).status == Status.EXITED)
        found = observer.details([0])[0].exit
        assert found is not None
        assert (found.code, found.seen_by) == (code, "kernel")
    finally:
        rank.end()


def test_what_one_look_missed_is_forgotten_at_the_end_but_not_what_is_forbidden(
    tmp_path: Path, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = StandIn(tmp_path, 0, "exit:0")
    try:
        monkeypatch.setattr(observer._proc, "may_trace", lambda pid: False)
        monkeypatch.setattr(stacks, "by_signal", lambda *_: ())
        observer.look()
        assert len(observer.deep([0])[0].notes) == 2  # no stack, and no worker server in a stand-in
        rank.go()
        until(lambda: facts_of(observer).status == Status.EXITED)
        assert observer.details([0])[0].notes == (f"no stack: {pyspy.NO_PERMISSION}",)
    finally:
        rank.end()


def test_a_killed_rank_leaves_what_it_was_doing(tmp_path: Path, observer: Observer) -> None:
    with stand_ins(tmp_path, "wait") as (rank,):
        until(lambda: facts_of(observer).wait_s)
        rank.process.kill()
        until(lambda: facts_of(observer).status == Status.KILLED)
        assert [op.name for op in observer.details()[0].history] == ["ALLREDUCE"]  # nobody had looked at them
        (detail,) = observer.deep([0])
        assert (str(detail.exit), [op.name for op in detail.operations]) == ("SIGKILL", ["ALLREDUCE"])
        assert facts_of(observer).rss_bytes > 0


def test_the_launcher_tells_of_an_exit_that_nobody_saw(tmp_path: Path, observer: Observer) -> None:
    box(tmp_path, pid=4_000_000, start=5)
    (tmp_path / "1.exits").write_text('{"pid": 4000000, "status": 6, "at_ns": 7000000000}\n')
    assert facts_of(observer).status == Status.KILLED
    assert str(observer.details()[0].exit) == "SIGABRT"


def test_without_a_witness_a_gone_rank_is_lost_but_not_at_once(tmp_path: Path, observer: Observer) -> None:
    box(tmp_path, pid=4_000_000, start=5)
    assert facts_of(observer, now_s=100.0).status == Status.RUNNING
    assert facts_of(observer, now_s=101.9).status == Status.RUNNING
    assert facts_of(observer, now_s=102.1).status == Status.LOST
    assert str(observer.details()[0].exit) == "exit code not seen"


def test_a_gone_rank_that_said_goodbye_has_exited(tmp_path: Path, observer: Observer) -> None:
    box(tmp_path, pid=4_000_000, start=5).set_text(layout.ENDING, {"what": "exception", "type": "ValueError"})
    facts_of(observer, now_s=100.0)
    assert facts_of(observer, now_s=103.0).status == Status.EXITED


def test_a_later_process_with_the_same_number_is_not_the_rank(tmp_path: Path, observer: Observer) -> None:
    box(tmp_path, pid=os.getpid(), start=5)
    facts_of(observer, now_s=100.0)
    facts = facts_of(observer, now_s=103.0)
    assert (facts.status, facts.main_state) == (Status.LOST, "X")


def test_a_candidate_is_shown_as_one(tmp_path: Path, observer: Observer) -> None:
    box(tmp_path, pid=os.getpid()).live[Live.IS_RANK] = 0
    facts_of(observer, now_s=50.0)
    (detail,) = observer.details()
    assert (detail.is_rank, detail.still_since_s) == (False, 50.0)


def test_a_glance_tells_whether_every_rank_gets_on(tmp_path: Path, observer: Observer) -> None:
    first, second = box(tmp_path, 0), box(tmp_path, 1, pid=4_000_000, start=5)
    observer.look()
    assert not observer.gets_on()
    first.live[Live.STEP] += 1
    assert not observer.gets_on()  # the other one has not
    first.live[Live.STEP] += 1
    second.live[Live.OPERATIONS] += 1
    assert observer.gets_on()
    assert not observer.gets_on()  # since that glance
    first.live[Live.STEP] += 1
    second.live[Live.OPERATIONS] += 1
    observer.look()
    assert not observer.gets_on()  # since that look
    for writer in (first, second):
        writer.live[Live.STEP] += 1
    second.live[Live.FINALIZING_NS] = 1
    assert not observer.gets_on()


def test_a_glance_at_a_box_that_was_cut_off_reads_nothing_of_it(tmp_path: Path, observer: Observer) -> None:
    writer = box(tmp_path, 0)
    observer.look()
    writer.live[Live.STEP] += 1
    os.truncate(writer.path, 100)
    assert not observer.gets_on()


def test_a_restarted_rank_takes_the_place_of_the_one_before(tmp_path: Path, observer: Observer) -> None:
    box(tmp_path, pid=4_000_000, start=5, attempt=0)
    assert facts_of(observer).pid == 4_000_000
    box(tmp_path, attempt=1)
    assert facts_of(observer).pid == os.getpid()
    assert [detail.attempt for detail in observer.details()] == [1]


def test_dead_boxes_are_removed_once_reported_and_living_ones_are_not(tmp_path: Path, observer: Observer) -> None:
    box(tmp_path, 0, pid=4_000_000, start=5)
    box(tmp_path, 1)
    observer.look()
    observer.remove_dead([0, 1])
    assert [facts.rank for facts in observer.look()] == [1]


def test_one_rank_that_does_not_answer_holds_up_no_other(
    tmp_path: Path, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    released = threading.Event()

    def stuck_stacks(self: Observer, watch: RankWatch, now_s: float, deadline_s: float) -> list[object]:
        if watch.box.rank == 0:
            released.wait()
        return []

    monkeypatch.setattr(Observer, "_stacks", stuck_stacks)
    box(tmp_path, 0)
    process(tmp_path / "unused", 1)
    observer.look()
    (detail,) = observer.deep([0], recorder=False, limit_s=0.1)
    assert detail.notes == ("did not answer within 0.1 s",)
    assert observer.deep([0], recorder=False, limit_s=0.1)[0].notes == detail.notes
    released.set()


def test_the_digest_changes_with_the_line() -> None:
    assert digest([Frame("f", "a.py", 1)]) == digest([Frame("f", "a.py", 1, False)])
    assert digest([Frame("f", "a.py", 1)]) != digest([Frame("f", "a.py", 2)])


def test_a_bare_terminal_read_is_a_person(tmp_path: Path) -> None:
    process(tmp_path, 7)
    (tmp_path / "7/fd").mkdir()
    (tmp_path / "7/fd/0").symlink_to("/dev/pts/3")
    proc = Procfs(tmp_path)
    assert _reads_terminal(proc, 7, Call("read", (0, 1, 2)))
    assert _reads_terminal(proc, 7, Call("pselect6", (1, 1, 2)))
    assert not _reads_terminal(proc, 7, Call("read", (4, 1, 2)))
    (tmp_path / "7/fd/0").unlink()
    (tmp_path / "7/fd/0").symlink_to("/dev/null")
    assert not _reads_terminal(proc, 7, Call("read", (0, 1, 2)))
