"""`diagd run` on real processes: the job's life is the same as without it."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.terminal import ON_TERMINAL
from tests.supervisor.harness import Run, alive, python, script, until

READY = "from pathlib import Path; import os, sys, time, signal; Path('ready').write_text(str(os.getpid()));"
RANKS = [
    {"rank": r, "host": "h", "pid": 1, "state": "exited", "step": 5, "phase": "other", "last_seen_at": 1.0}
    for r in range(3)
]
REPORT = {
    "schema": "diagd.report/1",
    "job": {"id": "j", "world_size": 3, "started_at": 1.0, "ended_at": 2.0, "exit_code": 0, "command": ["x"]},
    "ranks": RANKS,
    "incidents": [],
}


def ready(folder: Path) -> int:
    return int(until(lambda: (folder / "ready").exists() and (folder / "ready").read_text()))


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_jobs(tmp_path: Path, code: int) -> None:
    done = Run(tmp_path, {"report": REPORT}).finish("--", "sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert (done.returncode, done.stdout) == (code, "out\n")
    assert done.stderr.startswith("err\n")


def test_the_summary_comes_also_when_all_went_well(tmp_path: Path) -> None:
    done = Run(tmp_path, {"report": REPORT}).finish("--", "true")
    assert done.stderr == "diagd: 3 ranks, 5 steps; no incident.\n"


def test_a_report_that_was_not_written_to_the_end_is_never_passed_over(tmp_path: Path) -> None:
    for final, lines in ((True, 0), (False, 2)):
        err = Run(tmp_path, {"report": {**REPORT, "final": final}}).finish("-q", "--", "true").stderr.splitlines()
        assert len(err) == lines, err
    assert err[1] == "diagd: The last report could not be written: what came after this is not known."


def test_quiet_leaves_the_summary_out(tmp_path: Path) -> None:
    assert Run(tmp_path, {"report": REPORT}).finish("--quiet", "true").stderr == ""


def test_a_job_ended_by_a_signal_gives_128_and_its_number(tmp_path: Path) -> None:
    assert Run(tmp_path).finish("--", "sh", "-c", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV


def test_how_the_job_ended_can_be_seen_until_the_watch_is_done(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.finish("--", "sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL
    assert [note["left"] for note in run.notes() if "left" in note] == ["Z"]


def test_a_command_that_does_not_exist_is_told_as_a_shell_does(tmp_path: Path) -> None:
    done = Run(tmp_path).finish("--", "no-such-command")
    assert done.returncode == 127
    assert done.stderr.splitlines()[0] == "diagd: no-such-command: command not found"
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_executable_is_told_as_a_shell_does(tmp_path: Path) -> None:
    plain = script(tmp_path / "job", "echo hi\n", 0o644)
    done = Run(tmp_path).finish("--", str(plain))
    assert done.returncode == 126
    assert "chmod +x" in done.stderr


def test_a_folder_or_a_script_without_its_interpreter_is_explained(tmp_path: Path) -> None:
    assert Run(tmp_path).finish("--", str(tmp_path)).returncode == 126
    done = Run(tmp_path).finish("--", str(script(tmp_path / "job", "#!/no/such/interpreter\n")))
    assert done.returncode == 127
    assert "interpreter" in done.stderr


def test_a_script_without_an_interpreter_line_runs_as_in_a_shell(tmp_path: Path) -> None:
    done = Run(tmp_path).finish("--", str(script(tmp_path / "job", 'echo "$1"; exit 3\n')), "word")
    assert (done.returncode, done.stdout) == (3, "word\n")


def test_the_environment_differs_by_little(tmp_path: Path) -> None:
    run = Run(tmp_path, environ={"PYTHONPATH": "/theirs"})
    done = run.finish(*python("import os, json; print(json.dumps(dict(os.environ)))"))
    theirs = json.loads(done.stdout)
    changed = {n for n in theirs.keys() | run.environ.keys() if theirs.get(n) != run.environ.get(n)}
    assert changed - {"LC_CTYPE"} == {
        "DIAGD_DIR", "DIAGD_JOB_ID", "PYTHONPATH", "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE",
    }  # fmt: skip
    first, _, rest = theirs["PYTHONPATH"].partition(":")
    assert first.endswith("probes/bootstrap")
    assert rest == run.environ["PYTHONPATH"]


def test_what_the_user_has_set_for_the_recorder_stays(tmp_path: Path) -> None:
    run = Run(tmp_path, environ={"TORCH_FR_BUFFER_SIZE": "7", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine"})
    done = run.finish("--", "sh", "-c", "echo $TORCH_FR_BUFFER_SIZE ${TORCH_FR_DUMP_TEMP_FILE-unset}")
    assert done.stdout == "7 unset\n"


def test_descriptors_and_signal_dispositions_are_those_of_the_caller(tmp_path: Path) -> None:
    # The C library's posix_spawn ignores its own two signals, 32 and 33, until it takes them up itself.
    sets = '[int(l.split()[1], 16) & ~(3 << 31) for l in open("/proc/self/status") if l[:6] in ("SigBlk", "SigIgn")]'
    show = f"print({sets})"
    plain = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -c '{show}'"], stdout=subprocess.PIPE, text=True, check=True
    )
    read, write = os.pipe()
    os.write(write, b"given")
    os.close(write)
    done = Run(tmp_path).finish(*python(f"import os; print(os.read({read}, 9)); {show}"), pass_fds=[read])
    os.close(read)
    assert done.stdout == f"b'given'\n{plain.stdout}"


def test_the_watch_holds_nothing_of_the_jobs_and_sits_in_a_session_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    read, write = os.pipe()
    run.finish("--", "true", pass_fds=[write])
    os.close(read)
    os.close(write)
    first = run.notes()[0]
    assert first["session"] == first["pid"]
    assert write not in first["fds"]


def test_standard_input_reaches_the_job(tmp_path: Path) -> None:
    process = Run(tmp_path).start("--", "cat", stdin=subprocess.PIPE)
    assert process.communicate("hello", timeout=20)[0] == "hello"


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGWINCH]
)
def test_signals_are_passed_on(tmp_path: Path, number: signal.Signals) -> None:
    # Not one long sleep: that would miss a signal which comes just before it begins.
    code = f"import signal, sys, time; signal.signal({int(number)}, lambda *a: sys.exit(40));{READY}"
    code += "\nwhile True: time.sleep(0.05)"
    process = Run(tmp_path).start(*python(code))
    ready(tmp_path)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 40


def test_a_signal_that_the_job_ignores_does_not_end_diagd(tmp_path: Path) -> None:
    code = "import signal; signal.signal(15, signal.SIG_IGN);" + READY + "time.sleep(1.5); sys.exit(9)"
    process = Run(tmp_path).start(*python(code))
    ready(tmp_path)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 9


def on_a_terminal(run: Run, *words: str) -> tuple[int, "subprocess.Popen[bytes]"]:
    """Start the run on a pseudo-terminal: our end of it, and the process. It may not print much."""
    ours, line = pty.openpty()
    process = subprocess.Popen(
        [*ON_TERMINAL, *run.command(*words)], stdin=line, stdout=line, stderr=line, cwd=run.folder, env=run.environ,
        start_new_session=True,
    )  # fmt: skip
    os.close(line)
    return ours, process


def test_ctrl_c_at_a_terminal_reaches_the_job_once(tmp_path: Path) -> None:
    code = (
        "import signal; n = []; signal.signal(2, lambda *a: n.append(1));" + READY
        + "[time.sleep(0.05) for _ in range(200) if not n]; time.sleep(1); print('interrupts', len(n)); sys.exit(5)"
    )  # fmt: skip
    terminal, process = on_a_terminal(Run(tmp_path), *python(code))
    ready(tmp_path)
    os.write(terminal, b"\x03")
    ended = process.wait(timeout=30)
    output = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert ended == 5
    assert "interrupts 1" in output


def test_the_job_sees_the_terminal(tmp_path: Path) -> None:
    code = "import os; print('ttys', [os.isatty(n) for n in range(3)])"
    terminal, process = on_a_terminal(Run(tmp_path), *python(code))
    process.wait(timeout=30)
    output = os.read(terminal, 65536)
    os.close(terminal)
    assert b"ttys [True, True, True]" in output


def test_a_watch_that_dies_is_started_again_and_the_job_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path)
    code = READY + "[time.sleep(0.05) for _ in range(400) if not os.path.exists('go')]; sys.exit(6)"
    process = run.start(*python(code))
    job = ready(tmp_path)
    first = until(lambda: run.heard("job") and run.notes()[0]["pid"])
    os.kill(first, signal.SIGKILL)
    until(lambda: len(run.heard("job")) == 2)
    assert alive(job)
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 6
    assert "the watch process ended (signal SIGKILL); it is started anew" in err
    assert run.heard("exited") == [{"code": 6}]


def test_a_watch_that_cannot_live_is_given_up_and_the_job_is_not_touched(tmp_path: Path) -> None:
    run = Run(tmp_path, {"die": True})
    process = run.start(
        *python(READY + "[time.sleep(0.05) for _ in range(800) if not os.path.exists('go')]; sys.exit(4)")
    )
    ready(tmp_path)
    until(lambda: len(run.notes()) == 3)
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 4
    assert "unwatched" in err


def test_a_watch_that_never_finishes_does_not_keep_the_job(tmp_path: Path) -> None:
    run = Run(tmp_path, {"silent": True})
    began = time.monotonic()
    assert run.finish("--", "sh", "-c", "exit 3").returncode == 3
    assert time.monotonic() - began < 15


def test_abort_ends_all_processes_also_stopped_ones_and_those_in_other_sessions(tmp_path: Path) -> None:
    plan = {"say": [{"after": str(tmp_path / "ready"), "abort": {"incident": "i1", "summary": "rank 1 hangs"}}]}
    code = (
        "import subprocess, signal, sys, os, time; from pathlib import Path;"
        "deaf = 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(90)';"
        "w = [subprocess.Popen([sys.executable, '-c', deaf], start_new_session=True) for _ in range(2)];"
        "os.kill(w[0].pid, signal.SIGSTOP); Path('pids').write_text(' '.join(str(p.pid) for p in w));"
        "Path('ready').write_text('1'); time.sleep(90)"
    )
    done = Run(tmp_path, plan).finish("--on-hang", "abort", *python(code))
    assert done.returncode == 86
    assert "ending the job, as --on-hang abort says" in done.stderr
    assert not any(alive(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_restart_ends_the_culprit_alone(tmp_path: Path) -> None:
    plan = {"say": [{"after": str(tmp_path / "pid"), "restart": {"rank": 1, "incident": "i1"}}]}
    code = (
        "import subprocess, sys, os; from pathlib import Path;"
        "w = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(90)'], start_new_session=True);"
        "Path('new').write_text(str(w.pid)); os.rename('new', 'pid'); sys.exit(-w.wait())"
    )
    done = Run(tmp_path, plan).finish("--on-hang", "restart", *python(code))
    assert done.returncode == signal.SIGKILL
    assert "ending rank 1" in done.stderr


def test_what_the_culprit_has_started_ends_with_it(tmp_path: Path) -> None:
    plan = {"say": [{"after": str(tmp_path / "pid"), "restart": {"rank": 1, "incident": "i1"}}]}
    code = (
        "import subprocess, sys; from pathlib import Path;"
        "start = 'import os, subprocess, sys, time; from pathlib import Path;"
        ' w = subprocess.Popen([sys.executable, chr(45) + chr(99), chr(105) + "mport time; time.sleep(90)"]);'
        ' Path("stuck").write_text(str(w.pid)); Path("new").write_text(str(os.getpid()));'
        ' os.rename("new", "pid"); time.sleep(90)\';'
        "sys.exit(-subprocess.Popen([sys.executable, '-c', start]).wait())"
    )
    done = Run(tmp_path, plan).finish("--on-hang", "restart", *python(code))
    assert done.returncode == signal.SIGKILL
    assert not alive(int((tmp_path / "stuck").read_text()))


def test_a_process_of_another_job_is_never_ended(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    (tmp_path / "pid").write_text(str(bystander.pid))
    plan = {"say": [{"after": str(tmp_path / "pid"), "restart": {"rank": 1, "incident": "i1"}}]}
    done = Run(tmp_path, plan).finish("--on-hang", "restart", "--", "sleep", "1")
    assert "not ended" in done.stderr
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_the_run_directory_is_private_while_it_runs_and_gone_after(tmp_path: Path) -> None:
    code = (
        "import os, time, json, stat; d = os.environ['DIAGD_DIR']\n"
        "for _ in range(200):\n"
        "    if json.load(open(d + '/run.json')).get('http'): break\n"
        "    time.sleep(0.05)\n"
        "print(json.dumps([d, oct(os.stat(d).st_mode), json.load(open(d + '/run.json'))]))"
    )
    done = Run(tmp_path).finish("--job-id", "my job/1", *python(code))
    place, mode, facts = json.loads(done.stdout)
    assert mode == "0o40700"
    assert facts["job_id"] == "my job/1"
    assert facts["http"] == "127.0.0.1:2"
    assert len(place) < 60
    assert not Path(place).exists()


@pytest.mark.parametrize("name", ["missing/job.diagd", "/proc/job.diagd", "notes.txt", "/"])
def test_a_recording_that_cannot_be_written_is_told_before_the_job_starts(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("something else")
    done = Run(tmp_path).finish("--record", name, "--", "touch", "started")
    assert done.returncode == 2
    assert f"--record {name}" in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "something else"
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("place", ["file/below", "file", "/dev/full", "/proc/below"])
def test_a_report_folder_that_cannot_be_written_is_told_before_the_job_starts(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    done = Run(tmp_path).finish("--report", place, "--", "touch", "started")
    assert (done.returncode, f"diagd: --report {place}: cannot be written" in done.stderr) == (2, True)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--hang-after", "-1", "true"],
        ["--hang-after", "nan", "true"],
        ["--on-hang", "x", "true"],
        ["--aggregator", "host", "true"],
        [],
    ],
)
def test_wrong_usage_is_2_and_starts_nothing(tmp_path: Path, words: list[str]) -> None:
    done = Run(tmp_path).finish(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_jobs_own_options_are_left_alone(tmp_path: Path) -> None:
    done = Run(tmp_path).finish("sh", "-c", 'echo "$@"', "--report", "--help", "-q", "--job-id", "x")
    assert done.stdout == "--help -q --job-id x\n"


def test_run_inside_a_shell_script_and_a_pipe(tmp_path: Path) -> None:
    run = Run(tmp_path)
    command = " ".join(f"'{word}'" for word in run.command("--", "sh", "-c", "echo a; exit 3"))
    done = subprocess.run(
        ["sh", "-c", f"{command.replace(chr(39) + chr(10), chr(39))} | cat; echo after"],
        cwd=tmp_path, env=run.environ, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert done.stdout == "a\nafter\n"


def test_a_finished_jobs_report_is_kept(tmp_path: Path) -> None:
    run = Run(tmp_path, {"report": REPORT})
    run.finish("--job-id", "kept", "true")
    (kept,) = (tmp_path / "state/diagd").iterdir()
    assert kept.name.startswith("kept@")
    assert json.loads((kept / "report.json").read_text()) == REPORT


def test_it_is_said_why_nothing_was_seen(tmp_path: Path) -> None:
    nothing = {**REPORT, "ranks": []}
    isolated = Run(tmp_path, {"report": nothing}).finish("--", sys.executable, "-I", "-c", "pass")
    assert "started with -I" in isolated.stderr
    disabled = Run(tmp_path, {"report": nothing}, {"DIAGD_DISABLE": "1"}).finish("true")
    assert "DIAGD_DISABLE is set" in disabled.stderr


def test_a_job_outlives_its_supervisor_and_its_directory_is_not_taken_for_dead(tmp_path: Path) -> None:
    run = Run(tmp_path)
    code = READY + "Path('place').write_text(os.environ['DIAGD_DIR']); time.sleep(60)"
    process = run.start("--job-id", f"outlive-{os.getpid()}", *python(code), stdout=subprocess.DEVNULL, stderr=None)
    job = ready(tmp_path)
    place = Path(until(lambda: (tmp_path / "place").exists() and (tmp_path / "place").read_text()))
    until(lambda: run.heard("job"))
    process.kill()
    process.wait()
    run.finish("true")
    assert alive(job)
    assert place.is_dir()
    os.kill(job, signal.SIGKILL)
    until(lambda: not alive(job))
    run.finish("true")
    assert not place.exists()
