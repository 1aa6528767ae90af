"""A job's name, and the directory in which its ranks and diagd meet."""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagd.daemon.supervisor import place as places
from diagd.daemon.supervisor.place import MAX_BASE, MAX_NAME, Place, find_place, job_id_of


@pytest.fixture
def kept() -> Iterator[ExitStack]:
    """Lets go of places at the end."""
    with ExitStack() as stack:
        yield stack


def found(kept: ExitStack, job_id: str, environ: dict[str, str], shm: Path) -> Place:
    place, reason = find_place(job_id, environ, shm)
    assert place is not None, reason
    kept.callback(place.remove)
    return place


@pytest.mark.parametrize(
    ("command", "environ", "expected"),
    [
        (["torchrun", "--rdzv-id", "a", "x.py"], {}, "a"),
        (["torchrun", "--rdzv_id=b", "x.py"], {"PET_RDZV_ID": "c"}, "b"),
        (["torchrun", "x.py"], {"PET_RDZV_ID": "c"}, "c"),
        (["torchrun", "--rdzv-id=a"], {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "7.0"),
        (["torchrun"], {"SLURM_JOB_ID": "7", "DIAGD_JOB_ID": "mine"}, "mine"),
    ],
)
def test_the_name_comes_from_the_nearest_source(command: list[str], environ: dict[str, str], expected: str) -> None:
    assert job_id_of(command, environ) == expected


@pytest.mark.parametrize("command", [["python", "x.py"], ["torchrun", "--rdzv-id", "none"], ["torchrun", "--rdzv-id"]])
def test_a_job_without_a_name_gets_one_of_its_own(command: list[str]) -> None:
    names = {job_id_of(command, {}) for _ in range(10)}
    assert len(names) > 1
    assert all(len(name) <= MAX_NAME for name in names)


def test_the_directory_is_private_and_short(tmp_path: Path, kept: ExitStack) -> None:
    place = found(kept, "x" * 300, {}, tmp_path)
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(place.path.parent.stat().st_mode) == 0o700
    assert len(place.path.name) <= MAX_NAME


@given(st.text(min_size=1))
def test_any_name_makes_a_directory_name(job_id: str) -> None:
    name = places._directory_name(job_id)
    assert 0 < len(name) <= MAX_NAME
    assert name.isascii()
    assert "/" not in name
    assert not name.startswith(".")


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_names_make_different_directories(one: str, other: str) -> None:
    assert (one == other) == (places._directory_name(one) == places._directory_name(other))


def test_two_live_jobs_of_one_name_do_not_share(tmp_path: Path, kept: ExitStack) -> None:
    first = found(kept, "job", {}, tmp_path)
    second = found(kept, "job", {}, tmp_path)
    assert first.path != second.path


def test_a_place_knows_the_live_job_of_its_name(tmp_path: Path, kept: ExitStack) -> None:
    first, second, third = (found(kept, "job", {}, tmp_path) for _ in range(3))
    assert (first.twin, second.twin, third.twin) == (None, first.path, first.path)


def test_what_a_dead_job_left_is_removed_and_what_a_live_one_holds_is_not(tmp_path: Path, kept: ExitStack) -> None:
    dead = found(kept, "dead", {}, tmp_path)
    (dead.path / "1.box").touch()
    live = found(kept, "live", {}, tmp_path)
    dead.release()
    found(kept, "next", {}, tmp_path)
    assert not dead.path.exists()
    assert live.path.exists()


def test_a_folder_of_someone_else_is_not_used(tmp_path: Path, kept: ExitStack) -> None:
    shm, elsewhere, tmpdir = tmp_path / "shm", tmp_path / "elsewhere", tmp_path / "t"
    for folder in (shm, elsewhere, tmpdir):
        folder.mkdir()
    (shm / f"diagd-{os.getuid()}").symlink_to(elsewhere)
    place, _ = find_place("job", {}, shm)
    assert place is None or not place.path.is_relative_to(shm)
    if place is not None:
        kept.callback(place.remove)
    assert list(elsewhere.iterdir()) == []


def test_a_small_shm_is_left_to_the_job(tmp_path: Path, kept: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    shm, tmpdir = tmp_path / "shm", Path("/var/tmp")
    shm.mkdir()
    small = SimpleNamespace(f_bavail=64 * 256, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda path: small)
    place = found(kept, "job", {"TMPDIR": str(tmpdir)}, shm)
    assert place.path.is_relative_to(tmpdir)


def test_without_shm_the_first_tmpdir_short_enough_for_a_socket_is_taken(tmp_path: Path, kept: ExitStack) -> None:
    place = found(kept, "job", {"TMPDIR": f"/tmp/{'x' * 90}"}, tmp_path / "absent")
    assert len(str(place.path)) <= MAX_BASE + MAX_NAME


def test_a_place_that_cannot_be_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(places, "_parents", lambda environ, shm: [file])
    place, reason = find_place("job", {}, tmp_path)
    assert place is None
    assert "Not a directory" in reason
