"""Which processes are ranks: forks, spawned ranks, data workers, launchers and lone ones."""

import signal
from pathlib import Path

import pytest
from tests.probes.jobs import SCRIPTS, boxes, exits, line_of, run

from diagd.probes.box.layout import Op

LONE = SCRIPTS / "lone.py"


def test_a_training_script_without_process_groups_is_rank_0_of_1(tmp_path: Path) -> None:
    assert run(LONE, folder=tmp_path, WORKERS="2").returncode == 0
    (box,) = boxes(tmp_path)
    assert (box.live["IS_RANK"], box.live["STEP"]) == (1, 8)
    assert (box.identity["rank"], box.identity["world_size"]) == (0, 1)
    assert set(exits(tmp_path).values()) == {0}  # its data workers'


def test_a_forked_child_writes_no_box_and_takes_nothing_down(tmp_path: Path) -> None:
    process = run(LONE, "fork", folder=tmp_path)
    assert (process.returncode, process.stdout.count("child 5")) == (0, 3), process.stderr
    (box,) = boxes(tmp_path)
    assert box.live["OPTIMIZER_STEPS"] == 9


def test_a_rank_that_forks_goes_on_and_can_still_be_asked_for_its_flight_recorder(tmp_path: Path) -> None:
    process = run(SCRIPTS / "forks.py", str(tmp_path), folder=tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (0, "child 5\n[1, 2]\n", "")
    (box,) = boxes(tmp_path)
    assert [record.seq for record in box.named(Op.ALLREDUCE)] == [1, 2]
    assert box.identity["fr_socket"] == str(tmp_path / f"{box.identity['pid']}.fr.sock")


def test_a_script_that_only_imports_torch_is_no_rank(tmp_path: Path) -> None:
    assert run("import torch.distributed", folder=tmp_path).returncode == 0
    assert boxes(tmp_path) == []


def test_rank_in_the_environment_makes_a_candidate(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import torch.distributed'], check=True)"
    assert run(f"import torch.distributed; {child}", folder=tmp_path, RANK="3", WORLD_SIZE="8").returncode == 0
    (box,) = boxes(tmp_path)
    assert (box.live["IS_RANK"], box.identity["rank"], box.identity["world_size"]) == (0, 3, 8)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_that_a_script_starts_itself_are_ranks_and_it_is_not(tmp_path: Path, method: str) -> None:
    script = SCRIPTS / "starts_ranks.py"
    process = run(script, method, folder=tmp_path)
    assert "rank 1 gives up" in process.stderr
    found = boxes(tmp_path)
    assert [box.identity["rank"] for box in found] == [0, 1]
    assert len({box.identity["pid"] for box in found}) == 2
    for box in found:
        assert [box.site(record)[0] for record in box.named(Op.ALLREDUCE)] == ["starts_ranks.py"]
    ending = found[1].ending
    assert (ending["what"], ending["type"], ending["message"]) == ("exception", "ValueError", "rank 1 gives up")
    assert ending["frames"][0][2] == line_of(script, "gives up")
    assert {file for _, file, _, user in ending["frames"] if user} == {str(script)}
    assert not any(user for _, file, _, user in found[0].ending.get("frames", ()) if file == "<string>")
    # On a busy machine torch's own teardown of a group that was not destroyed aborts now and then, without probes too.
    assert {256, int(signal.SIGABRT)} & set(exits(tmp_path).values())
    if method == "fork":
        assert found[0].ending.get("what") != "exception"


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_child_that_was_told_its_rank_and_fails_before_it_joins_is_shown_as_that_rank(
    tmp_path: Path, method: str
) -> None:
    script = SCRIPTS / "fails_early.py"
    assert "no vocabulary" in run(script, method, "told", folder=tmp_path).stderr
    (box,) = boxes(tmp_path)
    assert (box.live["IS_RANK"], box.identity["rank"], box.identity["world_size"]) == (0, 1, 3)
    assert (box.ending["what"], box.ending["message"]) == ("exception", "no vocabulary")
    assert box.ending["frames"][0][2] == line_of(script, "fails")


@pytest.mark.parametrize("how", ["worker", "untold"])
def test_a_failing_child_that_no_script_made_a_rank_is_none(tmp_path: Path, how: str) -> None:
    assert "no vocabulary" in run(SCRIPTS / "fails_early.py", "fork", how, folder=tmp_path).stderr
    assert boxes(tmp_path) == []


def test_a_failing_child_of_a_process_that_has_a_rank_is_not_taken_for_it(tmp_path: Path) -> None:
    run(SCRIPTS / "fails_early.py", "fork", "told", folder=tmp_path, RANK="0", WORLD_SIZE="2")
    (box,) = boxes(tmp_path)
    assert box.identity["rank"] == 0
    assert box.ending["what"] == "shutdown"
