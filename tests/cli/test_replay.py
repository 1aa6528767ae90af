"""`diagd replay`: a recorded run, judged again."""

import json
import struct
from pathlib import Path

import pytest
from tests.record.corpus import unpacked

from diagd.daemon.cli.main import main
from diagd.daemon.cli.replay import exit_code
from diagd.daemon.detectors.finding import Severity
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.record.record import LENGTH, MAGIC
from diagd.daemon.state.job import JobState


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


def beginnings(content: bytes) -> list[int]:
    """Where entries of a recording begin."""
    found, at = [], len(MAGIC)
    while at < len(content):
        found.append(at)
        at += LENGTH.size + LENGTH.unpack_from(content, at)[0]
    return found


@pytest.mark.parametrize("broken", ["entry", "length", "zeros", "last entry", "time"])
def test_damage_within_a_recording_is_told_with_its_place(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with unpacked("ek_sigkill_forward") as path:
        content = bytearray(path.read_bytes())
    begins = beginnings(bytes(content))
    at = begins[-1] if broken == "last entry" else begins[len(begins) // 3]
    spoilt = {"length": b"\xff\xff\xff\x00", "zeros": bytes(4)}.get(broken)
    if broken == "time":  # the first field, after its tag
        content[at + 5 : at + 13] = struct.pack("<d", 1e300)
    elif spoilt is not None:
        content[at : at + 4] = spoilt
    else:
        content[at + 4 : at + 12] = b"\xff" * 8
    (tmp_path / "bad.rec").write_bytes(content)
    told = f"the recording is damaged at byte {at} of {len(content)}, and was not read from there on"
    main(["replay", str(tmp_path / "bad.rec")])
    assert capsys.readouterr().out.endswith(f"; {told}.\n")
    main(["analyze", str(tmp_path / "bad.rec")])
    assert capsys.readouterr().out.endswith(f"  note: {told}.\n")
    main(["replay", "--json", str(tmp_path / "bad.rec")])
    assert json.loads(capsys.readouterr().out)["notes"][-1] == told


@pytest.mark.parametrize(("severity", "ended", "damaged", "code"), [
    (Severity.INFO, True, False, 0), (Severity.WARNING, True, False, 1), (Severity.WARNING, True, True, 1),
    (Severity.INFO, True, True, 3), (Severity.INFO, False, False, 3),
])  # fmt: skip
def test_the_exit_code_counts_faults_and_not_what_is_only_worth_knowing(
    severity: Severity, ended: bool, damaged: bool, code: int
) -> None:
    state = JobState()
    if ended:
        state.end(0, 5.0)
    incident = Incident(
        id="001-x", kind="training.loss_plateau", severity=severity, opened_s=1.0, ranks=(0,), summary="", causes=(),
        fixes=(), attempt=0, step=1, peak_severity=severity,
    )  # fmt: skip
    assert exit_code([(state, [incident])], damaged=damaged) == code


@pytest.mark.parametrize("content", [None, b"", b"something else"])
def test_what_is_no_recording_is_said_to_be_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:  # fmt: skip
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    assert main(["replay", str(tmp_path / "file")]) == 2
    assert "diagd run --record FILE" in capsys.readouterr().err
