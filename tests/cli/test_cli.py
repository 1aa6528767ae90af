"""The command line as a person meets it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.report.reports import incident, report

from diagd.daemon.cli.main import COMMANDS, main
from diagd.daemon.incidents.catalog import KINDS

HEAVY = ("torch", "grpc", "numpy", "rich", "textual", "jinja2", "psutil", "msgspec", "prometheus_client", "pynvml")
FOLDER = Path(__file__).resolve().parents[2] / "daemon/diagd/daemon/cli"
# Files in the folder that are not verbs.
HELPERS = {
    "__init__", "afterwards", "__main__", "main", "jobs", "checks", "choices", "reportdir", "reports", "service",
    "ledger_files", "ledger_lines", "ledger_save",
}  # fmt: skip


def diagd(*words: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "diagd.daemon.cli", *words],
        cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["dump", "--help"], ["version"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = f"""
import sys
from diagd.daemon.cli import main
code = main({words!r})
print([name for name in {HEAVY!r} if name in sys.modules], code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_help_lists_every_verb_and_loads_none() -> None:
    code = """
import sys
from diagd.daemon.cli import main
main(["--help"])
print(sorted(name for name in sys.modules if name.startswith("diagd.daemon.cli.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, loaded = " ".join(done.stdout.split()).rsplit("[", 1)
    assert loaded == "'diagd.daemon.cli.main']"
    for name, text in COMMANDS.items():
        assert f"{name} {text}" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_has_help_with_its_options(name: str) -> None:
    done = diagd(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: diagd {name}")
    assert len(done.stdout.splitlines()) >= 5


def test_every_file_is_a_verb_or_known_not_to_be() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(COMMANDS) | HELPERS


def test_exit_codes_are_in_the_help() -> None:
    done = diagd("--help")
    for code in ("85", "86", "3 partial"):
        assert code in done.stdout


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["stats"], "diagd status"),
        (["torchrun", "train.py"], "diagd run -- torchrun"),
        (["run"], "diagd run -- torchrun"),
        (["run", "--report", "", "--", "true"], "it is empty"),
        (["run", "--job-id", " ", "--", "true"], "it is empty"),
        (["run", "--report", "--", "true"], "its value is missing before --"),
        (["run", "--record", "--", "true"], "its value is missing before --"),
        (["run", "--job-id", "-q", "true"], "its value is missing before -q"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_right(words: list[str], hint: str) -> None:
    done = diagd(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert hint in done.stderr


def test_version_is_an_option_and_a_verb() -> None:
    shown = diagd("--version")
    assert (shown.returncode, shown.stdout) == (0, diagd("version").stdout)
    assert shown.stdout.startswith("diagd ")


def test_there_is_no_colour_off_a_terminal() -> None:
    assert "\033" not in diagd("explain", "hang.rank_missing").stdout


def test_explain_says_what_to_do() -> None:
    done = diagd("explain", "hang.rank_missing")
    assert done.returncode == 0
    for heading in ("What you see", "How it comes about", "do ", "verify"):
        assert heading in done.stdout


def test_explain_has_a_heading_for_what_to_do_and_names_causes_where_there_are_several() -> None:
    assert "\nWhat to do\n" in diagd("explain", "hang.rank_missing").stdout
    told = diagd("explain", "slow.straggler").stdout.splitlines()
    assert [line for line in told if line.startswith("What to do")] == ["What to do: late", "What to do: slow rank"]


@pytest.mark.parametrize("words", [["explain"], ["explain", "hang.rank_missing"], ["version"]])
def test_a_full_disk_is_no_fault_of_diagds(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "diagd.daemon.cli", *words], stdout=full, stderr=subprocess.PIPE, text=True,
            check=False, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1, "diagd: standard output cannot be written: No space left on device\n",
    )  # fmt: skip


def test_an_address_that_is_none_is_told_by_what_is_wrong_with_it() -> None:
    for address, why in (("localhost:99999", "no port 99999"), ("localhost:0", "no port 0"), ("x", "HOST:PORT")):
        done = diagd("run", "--aggregator", address, "--", "true")
        assert (done.returncode, why in done.stderr) == (2, True)


def test_help_says_all_that_diagd_is_for() -> None:
    said = " ".join(diagd("--help").stdout.split())
    assert "hangs, crawls, drifts apart, runs out of memory or learns nothing" in said


def test_explain_lists_the_kinds() -> None:
    assert "hang.data_starved" in diagd("explain").stdout


@pytest.mark.parametrize(
    ("word", "meant"), [("rank_mising", "hang.rank_missing"), ("hang.stopped", "hang.rank_stopped")]
)
def test_an_unknown_kind_gets_a_suggestion(word: str, meant: str) -> None:
    done = diagd("explain", word)
    assert done.returncode == 2
    assert meant in done.stderr


def test_a_family_is_listed_with_all_its_kinds_and_no_others() -> None:
    done = diagd("explain", "hang")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [k for k in KINDS if k.startswith("hang.")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_completion(shell: str) -> None:
    assert "_DIAGD_COMPLETE" in diagd("completion", shell).stdout


def test_completion_knows_the_kinds() -> None:
    done = diagd(COMP_WORDS="diagd explain hang.ra", COMP_CWORD="2", _DIAGD_COMPLETE="bash_complete")
    assert "plain,hang.rank_missing" in done.stdout.splitlines()


def test_incidents_of_a_report(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report(incident())))
    done = diagd("incidents", str(tmp_path), "--fail")
    assert done.returncode == 1
    assert "hang.data_starved" in done.stdout
    shown = diagd("incidents", str(tmp_path / "report.json"), "--json")
    assert json.loads(shown.stdout) == report(incident())
    assert shown.returncode == 0


def test_incidents_of_the_last_finished_job(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "diagd" / name).mkdir(parents=True)
        (tmp_path / "diagd" / name / "report.json").write_text(json.dumps(report(incident(id=name))))
    done = diagd("incidents", "b", "--json", XDG_STATE_HOME=str(tmp_path))
    assert json.loads(done.stdout)["incidents"][0]["id"] == "b"
    assert diagd("incidents", "--job", "b", "--json", XDG_STATE_HOME=str(tmp_path)).stdout == done.stdout
    assert diagd("incidents", "b", "--job", "b", XDG_STATE_HOME=str(tmp_path)).returncode == 2
    missing = diagd("incidents", "c", XDG_STATE_HOME=str(tmp_path))
    assert missing.returncode == 4
    assert "a" in missing.stderr


def test_whose_incidents_they_are_is_said_where_no_job_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "diagd" / "a").mkdir(parents=True)
    (tmp_path / "diagd" / "a" / "report.json").write_text(json.dumps(report(incident())))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("diagd.daemon.cli.reports.running_jobs", list)
    monkeypatch.setattr("diagd.daemon.cli.reports.without_diagd", lambda: "")
    for words, said in ((["incidents"], "job job-1: torchrun train.py\n"), (["incidents", "a"], "")):
        main(words)
        assert capsys.readouterr().err == said


def test_a_dump_is_told_by_the_path_at_which_it_lies(tmp_path: Path) -> None:
    kept, elsewhere = tmp_path / "diagd" / "a", tmp_path / "runs"
    (elsewhere / "dumps" / "i1").mkdir(parents=True)
    kept.mkdir(parents=True)
    found = {**report(incident(dump="dumps/i1")), "folder": str(elsewhere)}
    (kept / "report.json").write_text(json.dumps(found))
    done = diagd("incidents", "a", XDG_STATE_HOME=str(tmp_path))
    assert f"dump: {elsewhere}/dumps/i1" in done.stdout
    (elsewhere / "dumps" / "i1").rmdir()
    assert "dump: dumps/i1" in diagd("incidents", "a", XDG_STATE_HOME=str(tmp_path)).stdout


def test_what_is_no_report_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{")
    done = diagd("incidents", str(tmp_path))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_traceback_is_only_for_those_who_ask(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{")
    assert "Traceback" in diagd("-v", "incidents", str(tmp_path)).stderr


def test_dump_finds_a_process_by_its_pid_and_is_honest_about_ranks_that_are_not_there(tmp_path: Path) -> None:
    code = "def stuck():\n    print('up', flush=True)\n    input()\nstuck()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "6"},
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    try:
        done = diagd("dump", "--pid", str(process.pid), "-o", "out", cwd=tmp_path)
        again = diagd("dump", "--pid", str(process.pid), "-o", "out", cwd=tmp_path)
        partial = diagd("dump", "--pid", str(process.pid), "--rank", "0,5", cwd=tmp_path)
        short = diagd("dump", "--pid", str(process.pid), "--limit", "0.000001", "-o", "short", cwd=tmp_path)
    finally:
        process.communicate("")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "out")
    assert "stuck" in done.stdout
    assert (tmp_path / "out/summary.txt").read_text().startswith("dump of 1 process in")
    assert again.returncode == 2
    assert "holds a dump already" in again.stderr
    assert partial.returncode == 3
    assert "rank 5" in partial.stderr
    assert short.returncode == 3
    assert "after 1e-06 s a dump is closed" in short.stderr
    assert short.stderr.count("more time: diagd dump --limit") == 1
    assert "more time" not in done.stderr + partial.stderr


@pytest.mark.parametrize("ranks", ["5-2", "a", "1,,2", "-1"])
def test_ranks_that_make_no_sense_are_refused(ranks: str) -> None:
    assert diagd("dump", "--rank", ranks).returncode == 2


def test_dump_of_nothing_says_how_to_go_on() -> None:
    assert diagd("dump", "--pid", "999999999").returncode == 4
    done = diagd("dump", "--job", "no-such-job")
    assert done.returncode == 4
    assert "no running job is called no-such-job" in done.stderr


def test_doctor_says_what_is_there_and_what_is_lost(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    done = diagd("doctor", "--json", "--python", str(bare))
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert checks["run directory"]["state"] == "ok"
    assert checks["trainer's Python"]["state"] == "degraded"
    assert {"/dev/shm", "ptrace", "py-spy", "cgroup", "GPU", "ports"} <= set(checks)
    assert all(check["help"] for check in checks.values() if check["state"] in ("degraded", "missing"))


@pytest.mark.parametrize(
    "said", ['echo "$2" >&2', 'printf "cannot access %q" "$2" >&2', "head -c 5000 /dev/zero | tr '\\0' x >&2"]
)
def test_doctor_shows_a_program_that_is_no_python_in_one_short_line(tmp_path: Path, said: str) -> None:
    other = tmp_path / "ls"
    other.write_text(f"#!/bin/bash\n{said}\nexit 2\n")
    other.chmod(0o755)
    (found,) = [c["found"] for c in json.loads(diagd("doctor", "--json", "--python", str(other)).stdout)
                if c["name"] == "trainer's Python"]  # fmt: skip
    assert f"{other}: it does not answer as a Python does" in found
    assert len(found) < len(str(other)) + 260
    assert "import" not in found


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """Where click writes, it ends the command by itself."""
    command = f"{sys.executable} -m diagd.daemon.cli explain | head -c 1 > /dev/null; exit ${{PIPESTATUS[0]}}"
    codes = {subprocess.run(["bash", "-c", command], check=False, timeout=60).returncode for _ in range(3)}
    assert codes <= {0, 141}  # 0 where all was written before the reader left


@pytest.mark.parametrize(
    ("source", "name"), [("-", "stdin"), ("/dev/stdin", "stdin"), ("<(cat)", "pipe-"), ("fifo", "fifo")]
)
def test_scan_reads_a_log_that_is_piped_into_it(source: str, name: str, tmp_path: Path) -> None:
    lines = "".join(f"step {step} loss={'nan' if step >= 60 else 2.0 - step / 100}\n" for step in range(80))
    scan = f"exec 3<&0; {sys.executable} -m diagd.daemon.cli scan"
    if source == "fifo":
        scan = f"exec 3<&0; mkfifo fifo; cat <&3 > fifo & {scan}"
    if source == "<(cat)":
        source = "<(cat <&3)"
    done = subprocess.run(
        ["bash", "-c", f"{scan} {source}"], input=lines, capture_output=True, text=True, check=False, timeout=60,
        cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, "numerics.nonfinite" in done.stdout) == (1, True), done.stderr
    assert name in done.stdout
    assert "1 metric up to step 79" in done.stdout


def test_what_a_pipe_did_not_hold_is_said_of_the_pipe() -> None:
    done = subprocess.run(
        ["bash", "-c", f"echo nothing | {sys.executable} -m diagd.daemon.cli scan -"], capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr.startswith("diagd: -: holds no metrics\n")) == (2, True), done.stderr


def test_scan_waits_for_no_device() -> None:
    done = diagd("scan", "/dev/zero")
    assert (done.returncode, "/dev/zero is a device" in done.stderr) == (2, True)
