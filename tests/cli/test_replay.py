"""`diagd replay`: a recorded run, judged again."""

import json
from pathlib import Path

import pytest
from tests.record.corpus import unpacked

from diagd.daemon.cli.main import main


def test_the_verdicts_come_with_their_time_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    with unpacked("ek_sigkill_forward") as path:
        assert main(["replay", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("+")
    assert "critical exit.killed: rank 1 was killed (SIGKILL)" in lines[0]
    assert lines[-1].endswith("1 incident.")


def test_the_report_can_be_had_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with unpacked("sw_key_nobody") as path:
        main(["replay", str(path), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert [incident["kind"] for incident in report["incidents"]] == ["hang.store_wait"]


def test_another_patience_changes_what_needs_patience(capsys: pytest.CaptureFixture[str]) -> None:
    with unpacked("rb_http_all") as path:
        main(["replay", str(path), "--hang-after", "600"])
    assert "critical" not in capsys.readouterr().out


def test_it_takes_the_time_that_it_took_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("diagd.daemon.cli.replay.time.sleep", slept.append)
    monkeypatch.setattr("diagd.daemon.cli.replay.time.monotonic", lambda: sum(slept))
    with unpacked("ek_sigkill_forward") as path:
        main(["replay", str(path), "--speed", "2"])
    assert 2 < sum(slept) < 20


def test_a_recording_that_is_cut_off_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with unpacked("ek_sigkill_forward") as path:
        whole = path.read_bytes()
    (tmp_path / "cut.rec").write_bytes(whole[: len(whole) // 2])
    assert main(["replay", str(tmp_path / "cut.rec")]) == 3
    assert capsys.readouterr().out.endswith("; the recording ends before the job does.\n")


@pytest.mark.parametrize("content", [None, b"", b"something else"])
def test_what_is_no_recording_is_said_to_be_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:  # fmt: skip
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    assert main(["replay", str(tmp_path / "file")]) == 2
    assert "diagd run --record FILE" in capsys.readouterr().err
