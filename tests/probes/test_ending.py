"""How a rank ended, in the words of the process itself."""

from pathlib import Path
from typing import Any

import pytest
from tests.probes.jobs import SCRIPTS, boxes, line_of, run

LONE = SCRIPTS / "lone.py"


def ending(folder: Path, how: str, code: int) -> dict[str, Any]:
    process = run(LONE, how, folder=folder)
    assert process.returncode == code, process.stderr
    (box,) = boxes(folder)
    return box.ending


@pytest.mark.parametrize("how", ["exception", "own hook"])
def test_an_uncaught_exception_is_told_with_its_frames_whoever_reports_it(tmp_path: Path, how: str) -> None:
    found = ending(tmp_path, how, 1)
    assert (found["what"], found["type"], found["message"]) == ("exception", "KeyError", "'lost'")
    assert found["frames"][0] == ["fail", str(LONE), line_of(LONE, "failing"), True]
    assert found["frames"][1][0] == "<module>"
    assert found["at_ns"] > 0


@pytest.mark.parametrize(
    ("how", "mark", "code"), [("exit", "exit", 1), ("os._exit", "os._exit", 6), ("quit", "quit", 4)]
)
def test_a_call_of_exit_is_told_with_its_line(tmp_path: Path, how: str, mark: str, code: int) -> None:
    found = ending(tmp_path, how, code)
    assert (found["what"], found["code"]) == ("exit", code)
    assert found["message"] == ("enough" if how == "exit" else "")
    assert found["frames"][0] == ["<module>", str(LONE), line_of(LONE, mark), True]


def test_an_exit_in_the_handler_of_an_exception_is_told_with_that(tmp_path: Path) -> None:
    found = ending(tmp_path, "exit in a handler", 3)
    assert (found["what"], found["type"], found["message"], found["code"]) == ("exit", "KeyError", "'lost'", 3)
    lines = [line for _, _, line, _ in found["frames"][:3]]
    assert lines == [line_of(LONE, mark) for mark in ("failing", "tried", "giving up")]


def test_so_is_one_that_says_that_all_is_well(tmp_path: Path) -> None:
    found = ending(tmp_path, "done in a handler", 0)
    assert (found["type"], found["code"]) == ("KeyError", 0)
    assert line_of(LONE, "done") in [line for _, _, line, _ in found["frames"]]


def test_an_exit_that_was_caught_is_not_the_end(tmp_path: Path) -> None:
    assert ending(tmp_path, "caught exit", 0)["what"] == "shutdown"


def test_of_several_threads_that_died_the_last_is_told(tmp_path: Path) -> None:
    found = ending(tmp_path, "threads", 0)
    assert (found["thread_ended"]["thread"], found["thread_ended"]["type"]) == ("second", "KeyError")


def test_an_exit_in_a_thread_ends_that_alone(tmp_path: Path) -> None:
    found = ending(tmp_path, "exit in a thread", 0)
    assert found["what"] == "shutdown"
    told = found["thread_ended"]
    assert (told["thread"], told["type"], told["message"]) == ("feeder", "SystemExit", "no more shards")


def test_a_thread_that_died_is_told_beside_the_end(tmp_path: Path) -> None:
    found = ending(tmp_path, "thread", 0)
    assert found["what"] == "shutdown"
    assert (found["thread_ended"]["thread"], found["thread_ended"]["type"]) == ("feeder", "KeyError")


FALLS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for _ in range(7):
    dist.all_reduce(torch.ones(3))
raise RuntimeError("connection closed")
"""


def test_what_each_group_has_issued_is_told_as_of_the_end(tmp_path: Path) -> None:
    process = run(FALLS, folder=tmp_path)
    assert process.returncode == 1, process.stderr
    (box,) = boxes(tmp_path)
    (group,) = box.groups
    assert (box.ending["message"], box.reader.counters(group["index"])[0]) == ("connection closed", 7)
