"""Who holds a file lock, as the kernel tells it."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.builders import until, write

from diagd.daemon.agent.locks import holder
from diagd.daemon.agent.procfs import Procfs

LISTED = """\
1: POSIX  ADVISORY  WRITE 900 00:1a:7 0 EOF
3: FLOCK  ADVISORY  WRITE 4242 fd:01:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 4243 fd:01:77 0 EOF
4: OFDLCK ADVISORY  WRITE -1 fd:01:78 0 EOF
4: -> OFDLCK ADVISORY  WRITE 4244 fd:01:78 0 EOF
cut off
"""


@pytest.mark.parametrize(("pid", "found"), [(4243, 4242), (4242, 0), (900, 0), (4244, 0), (1, 0)])
def test_the_owner_is_found_by_the_number_of_the_lock(tmp_path: Path, pid: int, found: int) -> None:
    write(tmp_path / "locks", LISTED)
    assert holder(Procfs(tmp_path), pid) == found


def test_without_a_list_nobody_is_known_to_hold_it(tmp_path: Path) -> None:
    assert holder(Procfs(tmp_path), 4243) == 0


def test_a_real_process_waits_for_the_lock_that_this_one_holds(tmp_path: Path) -> None:
    path = tmp_path / "cache.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code = f"import fcntl; fcntl.flock(open({str(path)!r}), fcntl.LOCK_EX)"
        process = subprocess.Popen([sys.executable, "-c", code])
        try:
            until(lambda: holder(Procfs(), process.pid) == os.getpid())
        finally:
            process.kill()
            process.wait()
