"""torch's own worker server in the rank: what it does to the process stays with it."""

import signal
import threading
from pathlib import Path

import pytest
from tests.probes.jobs import run

from diagd.probes import server

SCRIPT = """
import os, signal, subprocess, sys
if sys.argv[1] == "default":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
sockets = [name for name in os.listdir(sys.argv[2]) if name.endswith(".fr.sock")]
blocked = {line.split()[0]: int(line.split()[1], 16) for line in open("/proc/self/status") if line.startswith("Sig")
           and "Q" not in line}
bit = 1 << (signal.SIGPIPE - 1)
threads = [tid for tid in os.listdir("/proc/self/task") if int(tid) != os.getpid()]
others = [open(f"/proc/self/task/{tid}/status").read() for tid in threads]
guarded = sum(int(text.split("SigBlk:")[1].split()[0], 16) & bit != 0 for text in others)
print(len(sockets), bool(blocked["SigIgn:"] & bit), bool(blocked["SigBlk:"] & bit), guarded > 0, flush=True)
reader, writer = os.pipe()
os.close(reader)
os.write(writer, b"x")
"""


@pytest.mark.parametrize(("action", "ignored", "code"), [("default", False, -13), ("kept", True, 1)])
def test_a_broken_pipe_is_to_the_script_what_it_was(tmp_path: Path, action: str, ignored: bool, code: int) -> None:
    process = run(SCRIPT, action, str(tmp_path), folder=tmp_path)
    assert process.stdout.split() == ["1", str(ignored), "False", "True"], process.stderr
    assert process.returncode == code


def test_threads_that_are_begun_with_the_server_block_the_signal_and_the_caller_does_not() -> None:
    masks: list[set[int]] = []
    reader = threading.Thread(target=lambda: masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))))
    with server._own_pipes():
        reader.start()
        reader.join()
    assert signal.SIGPIPE in masks[0]
    assert signal.SIGPIPE not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
