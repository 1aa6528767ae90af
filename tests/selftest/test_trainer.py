"""Which Python runs the self-test's jobs."""

import sys
from pathlib import Path

import pytest
from tests.selftest.stand_in import trainer_at

from diagd.daemon.errors import DiagdError
from diagd.daemon.selftest.trainer import Trainer, find_trainer


def test_the_one_that_is_named_is_asked(tmp_path: Path) -> None:
    path = trainer_at(tmp_path, "true")
    assert find_trainer(path) == Trainer(str(path), "3.12.1", "9.9")


def test_a_real_one_with_torch_says_so_without_importing_it() -> None:
    found = find_trainer(Path(sys.executable))
    assert found.path == sys.executable
    assert found.torch.startswith("2.")


def test_the_first_on_path_that_has_torch_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, says in (("a", '{"python": [3, 12, 1], "torch": null}'), ("b", '{"python": [3, 12, 1], "torch": "9.9"}')):
        (tmp_path / name).mkdir()
        trainer_at(tmp_path / name, "true", says)
    (tmp_path / "b" / "python").rename(tmp_path / "b" / "python3")
    monkeypatch.setenv("PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}:/usr/bin:/bin")
    assert find_trainer(None).path == str(tmp_path / "b/python3")


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ('{"python": [3, 12, 1], "torch": null}', "has no torch"),
        ('{"python": [3, 9, 2], "torch": "2.6"}', "is Python 3.9.2, and the probes need 3.11"),
        ("hello", "is no Python"),
    ],
)
def test_one_that_will_not_do_is_said_with_the_reason_and_what_to_do(tmp_path: Path, says: str, reason: str) -> None:
    path = trainer_at(tmp_path, "true", says)
    with pytest.raises(DiagdError) as caught:
        find_trainer(path)
    assert caught.value.message == f"no Python with torch: {path}: {reason}"
    assert "diagd selftest --python PATH" in caught.value.help
    assert caught.value.exit_code == 4


def test_what_cannot_be_run_is_said_too(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text("")
    with pytest.raises(DiagdError, match="Permission denied"):
        find_trainer(path)
