"""`diagd analyze` as a person meets it: on real dumps, on a dump folder, on a recording, and on what is none."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.analyze.written import call, save, world

from diagd.daemon.cli.analyze import NO_FAULT
from diagd.daemon.cli.main import main

FIXTURES = Path(__file__).with_name("fixtures")  # left by real jobs of 3 ranks on torch 2.13 and gloo
SCHEMA = json.loads((Path(__file__).parents[1] / "contract/report.schema.json").read_text(encoding="utf-8"))
WAITS = [call("all_reduce", 1), call("all_reduce", 2, state="started")]
BEHIND = [call("all_reduce", 1)]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Any:
    """What `diagd analyze --json` prints, held against the contract, with the exit code."""

    def run(*words: object) -> tuple[int, dict[str, Any]]:
        code = main(["analyze", "--json", *map(str, words)])
        found = json.loads(capsys.readouterr().out)
        jsonschema.validate(found, SCHEMA)
        return code, found

    return run


def test_a_real_gloo_job_in_which_a_rank_stayed_away(report: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(FIXTURES / "gloo_missing")
    (incident,) = found["incidents"]
    assert code == 1
    assert (incident["kind"], incident["ranks"], incident["waiting_ranks"]) == ("hang.rank_missing", [1], [0, 2])
    assert (incident["group"], incident["op"]) == ("0", {"name": "ALLREDUCE", "seq": 6})
    assert incident["locations"][0]["file"] == "/job/train.py"
    assert main(["analyze", str(FIXTURES / "gloo_missing")]) == 1
    assert "critical hang.rank_missing: rank 1 never entered ALLREDUCE #6 of group 0" in capsys.readouterr().out


def test_a_real_gloo_job_that_finished_has_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(FIXTURES / "gloo_finished")]) == 0
    assert capsys.readouterr().out == f"3 of 3 ranks (gloo, flight recorder 2.10), 17 operations: {NO_FAULT}.\n"


def test_files_that_are_named_one_by_one_are_the_same_as_their_folder(report: Any) -> None:
    folder = FIXTURES / "gloo_missing"
    _, whole = report(folder)
    _, one_by_one = report(*sorted(folder.iterdir()))
    assert one_by_one["incidents"] == whole["incidents"]


def test_a_dump_folder_gives_the_live_verdict_with_the_place_from_its_stacks(report: Any) -> None:
    code, found = report(FIXTURES / "dump_folder")
    (incident,) = found["incidents"]
    assert code == 1
    assert (incident["kind"], incident["ranks"], incident["severity"]) == ("hang.collective_mismatch", [1], "critical")
    assert [(place["function"], place["line"]) for place in incident["locations"]] == [
        ("finish", 48), ("train", 44), ("<module>", 55),
    ]  # fmt: skip
    assert [(row["rank"], row["step"], row["host"]) for row in found["ranks"]] == [(r, 40, "vm") for r in range(3)]


def test_a_recording_gives_the_live_verdict(report: Any) -> None:
    """All three roads lead to the same."""
    code, recorded = report(FIXTURES / "hang.record")
    _, dumped = report(FIXTURES / "dump_folder")
    assert code == 1
    assert recorded["job"]["exit_code"] == 86
    same = ("kind", "severity", "ranks", "waiting_ranks", "group", "op", "summary", "locations", "fingerprint")
    assert [{k: i[k] for k in same} for i in recorded["incidents"]] == [
        {k: i[k] for k in same} for i in dumped["incidents"]
    ]


def test_an_exception_that_a_rank_stands_in_is_known_from_its_dump(report: Any, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    shutil.copytree(FIXTURES / "dump_folder", folder)
    box = json.loads((folder / "rank1/box.json").read_text(encoding="utf-8"))
    box["facts"] = {"exception/handled": [40, "KeyError: 7\t/job/data.py\t11\tload"]}
    (folder / "rank1/box.json").write_text(json.dumps(box), encoding="utf-8")
    (incident,) = report(folder)[1]["incidents"]
    assert (incident["kind"], incident["ranks"]) == ("hang.collective_mismatch", [1])
    assert "KeyError: 7" in incident["summary"]


def test_a_recording_that_ends_before_its_job_is_not_called_clean(report: Any, tmp_path: Path) -> None:
    data = (FIXTURES / "hang.record").read_bytes()
    cut = tmp_path / "cut.record"
    cut.write_bytes(data[: len(data) // 8])
    code, found = report(cut)
    assert (code, found["incidents"]) == (3, [])
    assert "the recording ends before the job does" in found["notes"]


def test_a_reports_folder_stands_for_its_newest_dump(report: Any, tmp_path: Path) -> None:
    for number in ("001-a", "002-b"):
        shutil.copytree(FIXTURES / "dump_folder", tmp_path / "dumps" / number)
    os.utime(tmp_path / "dumps/001-a/summary.json", (1.0, 1.0))
    (tmp_path / "report.json").write_text("{}")
    assert report(tmp_path)[1]["job"]["id"] == "002-b"


@pytest.mark.parametrize("name", [".", "report.json"])
def test_a_report_without_a_dump_is_said_to_have_its_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for file in ("report.json", "report.html"):
        (tmp_path / file).write_text("{}")
    assert main(["analyze", str(tmp_path / name)]) == 2
    assert f"its verdicts stand in {tmp_path / 'report.json'}" in capsys.readouterr().err


def test_a_rank_that_is_gone_from_a_dump_folder_is_not_blamed(report: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURES / "dump_folder", tmp_path / "d")
    shutil.rmtree(folder / "rank1")
    (folder / "fr_trace_1.json").unlink()
    code, found = report(folder)
    assert (code, found["incidents"]) == (3, [])
    assert found["analysis"]["ranks_without_dump"] == [1]


def _without_its_barrier(folder: Path) -> Path:
    """A dump folder of which rank 1 has not come to what it met the others in."""
    shutil.copytree(FIXTURES / "dump_folder", folder)
    operations = json.loads((folder / "rank1/collectives.json").read_text())
    (folder / "rank1/collectives.json").write_text(json.dumps(operations[:-1]))  # before it came to its barrier
    box = json.loads((folder / "rank1/box.json").read_text())
    box["groups"][0]["enqueued"] = 45
    (folder / "rank1/box.json").write_text(json.dumps(box))
    entries = json.loads((folder / "fr_trace_1.json").read_text())
    entries["entries"] = [e for e in entries["entries"] if e["collective_seq_id"] < 46]
    entries["pg_status"]["0"]["last_enqueued_collective"] = 45
    (folder / "fr_trace_1.json").write_text(json.dumps(entries))
    return folder


def test_a_stopped_rank_shows_in_a_dump_folder(report: Any, tmp_path: Path) -> None:
    folder = _without_its_barrier(tmp_path / "d")
    process = json.loads((folder / "rank1/process.json").read_text())
    (folder / "rank1/process.json").write_text(json.dumps({**process, "state": "T"}))
    _, found = report(folder)
    assert [(i["kind"], i["ranks"]) for i in found["incidents"]] == [("hang.rank_stopped", [1])]


def test_who_waits_for_a_stopped_rank_is_named_though_its_flight_recorder_cannot_be_read(
    report: Any, tmp_path: Path
) -> None:
    folder = shutil.copytree(FIXTURES / "dump_folder", tmp_path / "d")
    process = json.loads((folder / "rank1/process.json").read_text())
    (folder / "rank1/process.json").write_text(json.dumps({**process, "state": "T"}))
    (folder / "rank1/collectives.json").write_text("[]")
    (folder / "fr_trace_1.json").unlink()
    box = json.loads((folder / "rank1/box.json").read_text())
    box["groups"][0]["enqueued"] = -1  # DDP's operations are known to the recorder alone
    (folder / "rank1/box.json").write_text(json.dumps(box))
    summary = json.loads((folder / "summary.json").read_text())
    summary["ranks"][1]["missing"] = {"collectives": "the process is stopped"}
    (folder / "summary.json").write_text(json.dumps(summary))
    _, found = report(folder)
    (incident,) = found["incidents"]
    assert (incident["kind"], incident["ranks"], incident["waiting_ranks"]) == ("hang.rank_stopped", [1], [0, 2])
    assert incident["op"] == {"name": "ALLREDUCE", "seq": 46}
    assert found["notes"] == ["rank 1 left nothing of its flight recorder: the process is stopped"]


@pytest.mark.parametrize(
    ("told", "severity"),
    [('{"hang_after_s": 1.0}', "critical"), ('{"hang_after_s": 3600}', "warning"), ("{", "warning"), (None, "warning")],
)
def test_a_dump_of_the_jobs_own_watch_is_judged_with_the_patience_of_its_user(
    report: Any, tmp_path: Path, told: str | None, severity: str
) -> None:
    folder = _without_its_barrier(tmp_path / "d")
    box = json.loads((folder / "rank1/box.json").read_text())
    (folder / "rank1/box.json").write_text(json.dumps({**box, "heartbeat_s": box["heartbeat_s"] + 20.0}))
    if told is not None:
        (folder / "job.json").write_text(told, encoding="utf-8")
    _, found = report(folder)
    assert [(i["ranks"], i["severity"]) for i in found["incidents"]] == [([1], severity)]


@pytest.mark.parametrize("name", ["box.json", "process.json", "collectives.json"])
def test_a_part_of_a_dump_folder_that_is_spoilt_is_named(report: Any, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(FIXTURES / "dump_folder", tmp_path / "d")
    (folder / "rank2" / name).write_text('[{"name": 3}')
    _, found = report(folder)
    assert [str(folder / "rank2" / name)] == [said.partition(" ")[0] for said in found["analysis"]["unreadable"]]
    assert found["incidents"][0]["kind"] == "hang.collective_mismatch"


def test_exit_codes_tell_a_fault_no_fault_and_what_could_not_be_decided(tmp_path: Path) -> None:
    assert main(["analyze", str(save(tmp_path / "fault", world(WAITS, WAITS, BEHIND)))]) == 1
    assert main(["analyze", str(save(tmp_path / "none", world(BEHIND, BEHIND)))]) == 0
    open_end = save(tmp_path / "open", world(WAITS, WAITS, BEHIND))
    (open_end / "trace_2").unlink()
    assert main(["analyze", str(open_end)]) == 3
    assert main(["analyze", str(tmp_path / "nowhere")]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["analyze", str(tmp_path / "empty")]) == 2


def test_what_is_no_dump_is_said_in_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace_0").write_text("Traceback (most recent call last):")
    assert main(["analyze", str(tmp_path / "trace_0")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"diagd: {tmp_path}/trace_0 is no flight recorder's dump: neither JSON nor pickle")


def test_several_dumps_in_one_folder_are_asked_for_one_by_one(
    tmp_path: Path, report: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FIXTURES / "dump_folder", tmp_path / "runs/diagd-dump-a")
    assert report(tmp_path)[1]["job"]["id"] == "diagd-dump-a"
    shutil.copytree(FIXTURES / "dump_folder", tmp_path / "r/dumps/001-b")
    assert main(["analyze", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "holds 2 dump folders, each analysed alone" in said
    assert all(f"diagd analyze {tmp_path}/{place} " in said for place in ("runs/diagd-dump-a", "r/dumps/001-b"))


def test_torchs_dumps_of_two_jobs_are_not_put_together(
    tmp_path: Path, report: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fr").mkdir()
    for place in ("one", "two"):
        save(tmp_path / "fr" / place, world(WAITS, WAITS, BEHIND))
    assert main(["analyze", str(tmp_path / "fr")]) == 2
    assert f"diagd analyze {tmp_path}/fr/two    ranks 0-2" in capsys.readouterr().err
    for rank in (0, 1):
        (tmp_path / f"fr/two/trace_{rank}").unlink()
    (tmp_path / "fr/one/trace_2").unlink()
    assert report(tmp_path / "fr")[1]["incidents"][0]["ranks"] == [2]  # a folder for each node


def test_folders_without_a_dump_are_not_listed_file_by_file(tmp_path: Path, report: Any) -> None:
    save(tmp_path / "d", world(WAITS, WAITS, BEHIND))
    for place in (".git/x1", "venv/lib/x1", "src/__pycache__/x1", "src/x1", "src/x2", "src/deep/x3"):
        (tmp_path / "d" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / place).write_text("nothing")
    (tmp_path / "d/venv/pyvenv.cfg").write_text("")
    (tmp_path / "d/beside").write_text("nothing")
    code, found = report(tmp_path / "d")
    assert code == 1
    beside, far = found["analysis"]["unreadable"]
    assert beside.startswith(f"{tmp_path}/d/beside is no flight recorder's dump")
    assert far.startswith(f"3 files in folders without a dump are none, such as {tmp_path}/d/src/x1, which is no")


def test_kinds_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumps = save(tmp_path / "d", world(BEHIND, BEHIND))
    assert main(["analyze", str(FIXTURES / "hang.record"), str(dumps)]) == 2
    assert "is analysed alone" in capsys.readouterr().err


def test_the_report_is_written_as_run_writes_it(tmp_path: Path) -> None:
    assert main(["analyze", "--report", str(tmp_path / "out"), str(FIXTURES / "gloo_missing")]) == 1
    jsonschema.validate(json.loads((tmp_path / "out/report.json").read_text()), SCHEMA)
    page = (tmp_path / "out/report.html").read_text()
    assert "rank 1 never entered ALLREDUCE #6 of group 0" in page


def test_names_from_a_dump_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = "\033[2J\nx"
    dumps = world([call("all_reduce", 2, state="started", group=group)], [call("all_reduce", 1, group=group)],
                  [call("all_reduce", 1)], groups={group: (0, 1, 2)})  # fmt: skip
    folder = save(tmp_path / "d", dumps)
    (folder / "trace_2").unlink()
    main(["analyze", str(folder)])
    said = capsys.readouterr().out
    assert "\033" not in said
    assert "rank 1 never entered ALLREDUCE #2" in said


def test_many_dumps_are_read_by_several_processes_and_tell_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                   report: Any) -> None:  # fmt: skip
    folder = save(tmp_path / "d", world(*([WAITS] * 6), BEHIND, WAITS))
    (folder / "trace_7").write_bytes(b"")
    _, alone = report(folder)
    monkeypatch.setattr("diagd.daemon.analyze.gather.WORTH_PROCESSES_BYTES", 0)
    _, together = report(folder)
    assert together == alone
    assert alone["incidents"][0]["ranks"] == [6]


def test_neither_torch_nor_the_servers_are_loaded() -> None:
    code = f"""
import sys
from diagd.daemon.cli import main
code = main(["analyze", {str(FIXTURES / "gloo_missing")!r}])
print([name for name in ("torch", "grpc", "jinja2", "pynvml", "textual") if name in sys.modules], code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 1"
