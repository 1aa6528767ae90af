"""What a running rank's main thread is seen to wait for in the kernel."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.agent.builders import process

from diagd.daemon.agent.calls import Calls, is_stored
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.state.model import CALL

FSYNC = "74 0x5 0x0 0x0 0x0 0x0 0x0 0x7ffd 0x7fb7"


def opened(proc: Path, fd: int, target: str) -> None:
    (proc / "9/fd").mkdir(parents=True, exist_ok=True)
    (proc / f"9/fd/{fd}").unlink(missing_ok=True)
    (proc / f"9/fd/{fd}").symlink_to(target)


@pytest.fixture
def x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def looks(proc: Path, times: int = 1) -> Calls:
    calls = Calls(9, Procfs(proc))
    for _ in range(times):
        calls.look()
    return calls


@pytest.mark.usefixtures("x86")
def test_a_wait_for_a_file_is_told_with_its_name_and_how_often(tmp_path: Path) -> None:
    process(tmp_path, 9, syscall=FSYNC)
    opened(tmp_path, 5, "/data/journal.bin")
    calls = looks(tmp_path, 3)
    process(tmp_path, 9, syscall="running")
    calls.look()
    told = [(stack.role, stack.syscall, stack.note, stack.times) for stack in calls.stacks()]
    assert told == [(CALL, "fsync", "/data/journal.bin", 3), (CALL, "", "", 1)]


@pytest.mark.usefixtures("x86")
@pytest.mark.parametrize("target", ["pipe:[7]", "socket:[7]", "/dev/pts/1", "/dev/shm/box", "anon_inode:[eventpoll]"])
def test_pipes_sockets_and_memory_are_no_storage(tmp_path: Path, target: str) -> None:
    process(tmp_path, 9, syscall=FSYNC.replace("74", "0", 1))
    opened(tmp_path, 5, target)
    (told,) = looks(tmp_path).stacks()
    assert (told.syscall, told.note, told.times) == ("", "", 1)


@pytest.mark.usefixtures("x86")
def test_what_is_written_in_a_checkpoint_is_left_out(tmp_path: Path) -> None:
    process(tmp_path, 9, syscall=FSYNC)
    opened(tmp_path, 5, "/data/model.pt")
    calls = Calls(9, Procfs(tmp_path), lambda: True)
    calls.look()
    assert calls.stacks() == []


@pytest.mark.parametrize("file", ["/data/journal.bin (deleted)", "journal.bin", "/data/a:[b]"])
def test_a_path_is_stored_whatever_it_looks_like(file: str) -> None:
    assert is_stored(file)


def test_a_process_is_watched_until_the_caller_is_done() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        with Calls(child.pid, Procfs()) as calls:
            threading.Event().wait(0.3)
        child.communicate(b"\n", timeout=10)
    assert sum(stack.times for stack in calls.stacks()) >= 2
    assert not any(thread.name == "diagd-calls" for thread in threading.enumerate())
