"""Why a process gives no stack is told by its nearest reason."""

from pathlib import Path

import pytest
from tests.agent.builders import process, write

from diagd.daemon.agent.permission import why_not
from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.agent.pyspy import NO_PERMISSION


@pytest.mark.parametrize(
    ("command", "owner", "mine", "said", "told"),
    [
        (("python3", "t.py"), 0, 0, "broken", "broken"),
        (("python3", "t.py"), 0, 0, NO_PERMISSION, NO_PERMISSION),
        (("python3", "t.py"), 0, 54321, NO_PERMISSION, "it belongs to root, and you are user 54321: look as that user"),
        (("python3", "t.py"), 54321, 0, NO_PERMISSION, NO_PERMISSION),  # to root it is no matter whose it is
        (("/sbin/init", "x"), 0, 0, NO_PERMISSION, "it is no Python process, as far as can be seen: it runs init"),
        (("/bin/sleep", "9"), 0, 0, "no version", "it is no Python process, it runs sleep"),
    ],
)
def test_the_reason(tmp_path: Path, command: tuple[str, ...], owner: int, mine: int, said: str, told: str) -> None:
    process(tmp_path, 10, command=command)
    write(tmp_path / "10/status", f"Name:\tx\nUid:\t{owner}\t{owner}\t{owner}\t{owner}\n")
    assert why_not(Procfs(tmp_path), 10, said, uid=mine).startswith(told)


def test_a_program_with_python_inside_is_python_and_a_kernel_thread_is_not(tmp_path: Path) -> None:
    process(tmp_path, 10, command=("ray::Worker",))
    write(tmp_path / "10/maps", "7f00-7f01 r-xp 0 00:00 1 /usr/lib/libpython3.11.so.1.0\n")
    assert why_not(Procfs(tmp_path), 10, "broken", uid=0) == "broken"
    process(tmp_path, 2)
    write(tmp_path / "2/cmdline", "")
    assert why_not(Procfs(tmp_path), 2, "broken", uid=0) == "it is no Python process, but a thread of the kernel"
    assert why_not(Procfs(tmp_path), 3, "the process has ended", uid=0) == "the process has ended"
