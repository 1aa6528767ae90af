"""Boxes as they come, go and go bad; run directories."""

import json
import os
import time
from pathlib import Path

import pytest
from tests.agent.builders import box, process

from diagd.daemon.agent import discovery, procfs
from diagd.daemon.agent.discovery import BoxFolder, find_jobs
from diagd.daemon.agent.procfs import Procfs
from diagd.probes.box import layout
from diagd.probes.box.layout import Live


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def folder(run_dir: Path, proc: Path) -> BoxFolder:
    return BoxFolder(run_dir, Procfs(proc))


def test_a_box_is_found_and_says_whose_it_is(run_dir: Path, proc: Path) -> None:
    box(run_dir, 3, pid=70, start=5)
    boxes = folder(run_dir, proc)
    found = boxes.by_rank()
    assert {rank: (b.pid, b.attempt, b.is_rank) for rank, b in found.items()} == {3: (70, 0, True)}
    boxes.close()


def test_a_box_that_is_removed_is_forgotten(run_dir: Path, proc: Path) -> None:
    writer, boxes = box(run_dir, pid=70, start=5), folder(run_dir, proc)
    assert boxes.scan()
    writer.path.unlink()
    assert boxes.scan() == []


def test_a_folder_in_which_nothing_comes_or_goes_is_not_listed_again(
    run_dir: Path, proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def counting(path: str) -> list[str]:
        listed.append(path)
        return procfs.listed(path)

    monkeypatch.setattr(discovery, "listed", counting)
    box(run_dir, 0, pid=70, start=5)
    boxes = folder(run_dir, proc)
    boxes.scan()
    boxes.scan()
    assert len(listed) == 2  # it has changed too lately for its time to show the next change
    long_ago = time.time() - 10
    os.utime(run_dir, (long_ago, long_ago))
    for _ in range(3):
        assert len(boxes.scan()) == 1
    assert len(listed) == 3
    box(run_dir, 1, pid=71, start=5)
    assert len(boxes.scan()) == 2
    boxes.close()


def test_a_rank_restarted_under_the_same_number_replaces_the_one_before(run_dir: Path, proc: Path) -> None:
    box(run_dir, pid=70, start=5, attempt=0)
    box(run_dir, pid=60, start=9, attempt=1)
    assert folder(run_dir, proc).by_rank()[0].pid == 60


def test_without_an_attempt_the_living_process_is_the_rank(run_dir: Path, proc: Path) -> None:
    process(proc, 70, start=5)
    box(run_dir, pid=70, start=5)
    box(run_dir, pid=60, start=9)
    assert folder(run_dir, proc).by_rank()[0].pid == 70


def test_a_tool_that_a_rank_starts_does_not_replace_it(run_dir: Path, proc: Path) -> None:
    process(proc, 70, start=5)
    process(proc, 71, start=9, parent=70)
    box(run_dir, pid=70, start=5)
    box(run_dir, pid=71, start=9)
    boxes = folder(run_dir, proc)
    assert boxes.by_rank()[0].pid == 70
    process(proc, 70, start=5, state="Z")
    assert boxes.by_rank()[0].pid == 70


def test_a_process_that_joins_in_its_parents_place_is_the_rank_until_the_next_one(run_dir: Path, proc: Path) -> None:
    process(proc, 70, start=5)
    parent = box(run_dir, pid=70, start=5)
    parent.live[Live.IS_RANK] = 0
    boxes = folder(run_dir, proc)
    assert boxes.by_rank()[0].pid == 70
    for pid in (71, 72):
        process(proc, pid, start=pid, parent=70)
        box(run_dir, pid=pid, start=pid)
        assert boxes.by_rank()[0].pid == pid
        process(proc, pid, start=pid, state="Z", parent=70)
        assert boxes.by_rank()[0].pid == pid
    parent.live[Live.IS_RANK] = 1
    assert boxes.by_rank()[0].pid == 70


def test_a_candidate_does_not_replace_a_rank(run_dir: Path, proc: Path) -> None:
    for pid, start in ((70, 5), (71, 9)):
        process(proc, pid, start=start)
    box(run_dir, pid=70, start=5)
    box(run_dir, pid=71, start=9).live[Live.IS_RANK] = 0
    assert folder(run_dir, proc).by_rank()[0].pid == 70


def test_a_process_without_a_rank_is_none(run_dir: Path, proc: Path) -> None:
    box(run_dir, pid=70, start=5, rank=-1)
    boxes = folder(run_dir, proc)
    assert boxes.by_rank() == {}
    assert [b.pid for b in boxes.boxes()] == [70]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "was cut off"),
        (b"DIAGDBOX", "was cut off"),
        (bytes(layout.BOX_SIZE), "does not start as a box does"),
        (b"DIAGDBOX" + (99).to_bytes(4, "little") + bytes(layout.BOX_SIZE), "is of box version 99"),
    ],
)
def test_what_is_no_box_is_left_with_one_note(run_dir: Path, proc: Path, content: bytes, reason: str) -> None:
    (run_dir / "70-5.box").write_bytes(content)
    boxes = folder(run_dir, proc)
    for _ in range(50):
        assert boxes.scan() == []
    assert len(boxes.notes) == 1
    assert reason in next(iter(boxes.notes.values()))


def test_a_box_that_is_cut_off_in_use_is_let_go(run_dir: Path, proc: Path) -> None:
    writer, boxes = box(run_dir, pid=70, start=5), folder(run_dir, proc)
    assert boxes.scan()
    with writer.path.open("r+b") as file:
        file.truncate(100)
    assert boxes.scan() == []
    assert "cut off while it was in use" in boxes.notes["70-5.box"]
    assert boxes.scan() == []


def test_a_box_that_is_still_being_made_is_read_once_it_is_ready(run_dir: Path, proc: Path) -> None:
    boxes = folder(run_dir, proc)
    writer = box(run_dir, pid=70, start=5)
    whole = writer.path.read_bytes()
    writer.path.write_bytes(whole[:1000])
    assert boxes.scan() == []
    writer.path.write_bytes(whole)
    assert [b.pid for b in boxes.scan()] == [70]
    assert boxes.notes == {}


def test_a_box_of_another_process_than_its_name_says_is_not_read(run_dir: Path, proc: Path) -> None:
    writer = box(run_dir, pid=70, start=5)
    writer.path.rename(run_dir / "80-5.box")
    boxes = folder(run_dir, proc)
    assert boxes.scan() == []
    assert "process 70 wrote it" in boxes.notes["80-5.box"]


def test_why_a_process_is_not_watched_is_passed_on(run_dir: Path, proc: Path) -> None:
    (run_dir / "70.off").write_text("no box could be made: No space left on device\n")
    boxes = folder(run_dir, proc)
    boxes.scan()
    assert boxes.notes["70.off"] == "process 70 is not watched: no box could be made: No space left on device"


def test_a_new_identity_is_taken_up(run_dir: Path, proc: Path) -> None:
    writer, boxes = box(run_dir, pid=70, start=5, rank=-1), folder(run_dir, proc)
    assert boxes.by_rank() == {}
    writer.set_text(layout.IDENTITY, {"rank": 2})
    assert list(boxes.by_rank()) == [2]


def test_a_box_in_the_fallback_folder_is_found(run_dir: Path, proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = run_dir.parent / "tmp" / "run"
    other.mkdir(parents=True)
    monkeypatch.setattr(discovery, "roots", lambda: [run_dir.parent, other.parent])
    box(other, 1, pid=70, start=5)
    assert list(folder(run_dir, proc).by_rank()) == [1]


def test_jobs_are_found_the_newest_first(tmp_path: Path) -> None:
    for place, job in enumerate(("older", "newer")):
        (tmp_path / job).mkdir()
        (tmp_path / job / "run.json").write_text(json.dumps({"job": job}))
        import os

        os.utime(tmp_path / job, (place, place))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    found = find_jobs([tmp_path, tmp_path / "missing"])
    assert [job.job for job in found] == ["broken", "newer", "older"]
    assert [job.info for job in found] == [{}, {"job": "newer"}, {"job": "older"}]
    assert not any(job.alive for job in found)


def test_a_job_with_a_living_process_is_alive(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    box(tmp_path / "job")
    assert find_jobs([tmp_path])[0].alive
