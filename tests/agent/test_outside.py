"""Finding ranks of jobs that run without diagd."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.agent.builders import process, until

from diagd.daemon.agent.outside import described, find_ranks, find_trainings
from diagd.daemon.agent.procfs import Procfs

RANK_1 = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "run"}


def ranks(proc: Path) -> list[tuple[int | None, int]]:
    return [(found.rank, found.pid) for found in find_ranks(Procfs(proc))]


def test_ranks_are_the_python_processes_with_a_rank(tmp_path: Path) -> None:
    process(tmp_path, 10, env={"RANK": "0", "WORLD_SIZE": "2"})
    process(tmp_path, 11, env=RANK_1)
    process(tmp_path, 12, env={"PATH": "/bin"})
    process(tmp_path, 13, env=RANK_1, command=("bash", "-c", "python train.py"), name="bash")
    assert ranks(tmp_path) == [(0, 10), (1, 11)]
    assert find_ranks(Procfs(tmp_path))[1].job == "run"


def test_the_outermost_process_with_a_rank_is_it(tmp_path: Path) -> None:
    process(tmp_path, 10, env=RANK_1)
    process(tmp_path, 11, env=RANK_1, parent=10)
    process(tmp_path, 12, env=RANK_1, parent=11)
    assert ranks(tmp_path) == [(1, 10)]


def test_a_shell_between_rank_and_worker_changes_nothing(tmp_path: Path) -> None:
    process(tmp_path, 10, env=RANK_1)
    process(tmp_path, 11, env=RANK_1, parent=10, name="sh", command=("sh", "-c", "x"))
    process(tmp_path, 12, env=RANK_1, parent=11)
    assert ranks(tmp_path) == [(1, 10)]


def test_data_workers_launchers_and_the_dead_are_none(tmp_path: Path) -> None:
    process(tmp_path, 10, env=RANK_1, name="pt_data_worker")
    process(tmp_path, 11, env=RANK_1, command=("python3", "-m", "torch.distributed.run", "train.py"))
    process(tmp_path, 12, env=RANK_1, state="Z")
    process(tmp_path, 13, env=RANK_1, command=("python3", "-c", "from multiprocessing.spawn import spawn_main"))
    assert ranks(tmp_path) == []


def test_a_process_that_is_named_is_taken_whatever_it_is(tmp_path: Path) -> None:
    process(tmp_path, 10, env={})
    process(tmp_path, 11, env=RANK_1)
    found = described([10, 11], Procfs(tmp_path))
    assert [(rank.rank, rank.pid, rank.command) for rank in found] == [
        (None, 10, "python3 train.py"),
        (1, 11, "python3 train.py"),
    ]


def test_a_helper_that_has_its_ranks_environment_is_not_that_rank(tmp_path: Path) -> None:
    env = {**RANK_1, "TORCH_WORKER_SERVER_SOCKET": "/tmp/rank1.sock"}
    tracker = ("python3", "-c", "from multiprocessing.resource_tracker import main;main(5)")
    process(tmp_path, 10, env=env)
    process(tmp_path, 11, env=env, parent=10, command=tracker)
    process(tmp_path, 12, env=env, parent=10, name="pt_data_worker")
    process(tmp_path, 13, env=env, parent=10, command=("python3", "evaluate.py"))
    process(tmp_path, 14, env={**env, "RANK": "0"}, parent=10)
    found = described([11, 14, 12, 10, 13], Procfs(tmp_path))
    assert [(rank.rank, rank.pid) for rank in found] == [(None, 11), (0, 14), (None, 12), (1, 10), (None, 13)]
    assert [rank.worker_server is not None for rank in found] == [False, True, False, True, False]


def test_trainings_are_the_python_processes_with_torch_in_them(tmp_path: Path) -> None:
    for pid, command in ((10, "train.py"), (11, "editor.py"), (12, "torchrun")):
        process(tmp_path, pid, command=("python3", command))
    for pid in (10, 12):
        (tmp_path / f"{pid}/maps").write_text("7f00-7f01 r-xp 0 00:00 1 /env/torch/lib/libtorch_cpu.so\n")
    assert find_trainings(Procfs(tmp_path)) == [(10, "python3 train.py", "")]


def test_a_real_process_is_found_by_its_environment(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    rank = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **RANK_1, "TORCHELASTIC_RUN_ID": str(tmp_path)}
    )
    try:
        until(lambda: Procfs().descendants([rank.pid])[rank.pid])
        assert [found.pid for found in find_ranks() if found.job == str(tmp_path)] == [rank.pid]
    finally:
        for pid in Procfs().descendants([rank.pid])[rank.pid]:
            os.kill(pid, signal.SIGKILL)
        rank.wait()


def test_a_rank_under_diagd_names_its_run_directory(tmp_path: Path) -> None:
    process(tmp_path, 10, env={**RANK_1, "DIAGD_DIR": "/dev/shm/diagd-0/job", "DIAGD_JOB_ID": "job"})
    (found,) = find_ranks(Procfs(tmp_path))
    assert (found.job, found.run_dir) == ("job", Path("/dev/shm/diagd-0/job"))


def test_where_ranks_meet_is_told(tmp_path: Path) -> None:
    meeting = {**RANK_1, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    process(tmp_path, 11, env=meeting)
    process(tmp_path, 12, env={**RANK_1, "RANK": "0"})
    assert {rank.pid: rank.meets_at for rank in find_ranks(Procfs(tmp_path))} == {11: "10.0.0.1:29500", 12: ""}
