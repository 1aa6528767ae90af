"""What faulthandler and py-spy write, and whose the frames are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from diagd.daemon.agent import faulthandler_text, frames, grouping, pyspy
from diagd.daemon.agent.pyspy import NoStack
from diagd.daemon.state.model import Frame, Stack, Thread

DUMP = """\
Thread 0x00007fbfec7ff700 (most recent call first):
  File "/opt/diagd/probes/diagd/probes/heartbeat.py", line 30 in beat
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007fbfecfff700 (most recent call first):
  <no Python frame>

Current thread 0x00007fbff5a4a740 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3245 in all_reduce
  File "/home/me/my project/train.py", line 41 in main
  File "/home/me/my project/train.py", line 60 in <module>
"""
FORKED = [
    ("__getitem__", "data.py", 41),
    ("_worker_loop", "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", 349),
    ("run", "/usr/lib/python3.11/multiprocessing/process.py", 108),
    ("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314),
    ("_launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 71),
    ("main", "train.py", 12),
]


def pyspy_json(pid: int, stack: list[tuple[str, str, int]], **extra: object) -> str:
    listed = [{"name": name, "filename": file, "line": line, "module": None} for name, file, line in stack]
    thread = {"pid": pid, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": pid, "owns_gil": True}
    return json.dumps([{**thread, "frames": listed, **extra}])


def test_faulthandlers_last_thread_is_the_main_one() -> None:
    main, other = faulthandler_text.parse(DUMP, 7)
    assert (main.main, main.tid, main.frames[0].function) == (True, 7, "all_reduce")
    assert main.user_frames[0] == Frame("main", "/home/me/my project/train.py", 41)
    assert other.frames == ()  # diagd's own thread is left out


def test_of_two_dumps_the_last_counts() -> None:
    later = DUMP.replace("line 41", "line 42")
    assert faulthandler_text.parse(DUMP + later, 7)[0].user_frames[0].line == 42


def test_half_a_dump_without_the_main_thread_has_none() -> None:
    many = DUMP[: DUMP.index("Current")] + "...\n"
    assert not any(thread.main for thread in faulthandler_text.parse(many, 7))


def test_what_newer_pythons_add_is_passed_over() -> None:
    text = 'Current thread 0x1 [MainThread] (most recent call first):\n  File "a.py", line 3 in f\n'
    text += '\nCurrent thread\'s C stack trace (most recent call first):\n  Binary file "/lib/x.so", at f+0x1 [0x2]\n'
    (main,) = faulthandler_text.parse(text, 7)
    assert (main.name, main.frames) == ("MainThread", (Frame("f", "a.py", 3),))


def test_nothing_parses_as_nothing() -> None:
    assert faulthandler_text.parse("", 7) == ()


def test_pyspys_json_becomes_threads() -> None:
    (main,) = pyspy.parse(pyspy_json(7, [("Data.get", "data.py", 3), ("<module>", "train.py", 9)]), 7)
    assert (main.main, main.holds_gil, main.tid) == (True, True, 7)
    assert main.frames == (Frame("get", "data.py", 3), Frame("<module>", "train.py", 9))


def test_a_forked_workers_stack_ends_where_it_began() -> None:
    (main,) = pyspy.parse(pyspy_json(7, FORKED), 7)
    assert [frame.function for frame in main.frames] == ["__getitem__", "_worker_loop", "run", "_bootstrap"]
    assert frames.in_data_loader(main.frames)


def test_py_spys_own_backtrace_is_left_out_of_its_reason() -> None:
    said = "Error: Failed to find a python interpreter in the .data section\n\nStack backtrace:\n   0: anyhow::error\n"
    assert pyspy.reason(said) == "Failed to find a python interpreter in the .data section"
    assert pyspy.reason("Error: Permission denied (os error 13)") == pyspy.NO_PERMISSION
    assert pyspy.reason("") == "py-spy failed without a word"


@pytest.mark.parametrize("text", ["", "[3]", '[{"frames": 3}]'])
def test_what_is_not_pyspys_is_said(text: str) -> None:
    with pytest.raises(NoStack):
        pyspy.parse(text, 7)


@pytest.mark.parametrize(
    ("file", "user"),
    [
        ("train.py", True),
        ("/home/me/lib/data.py", True),
        ("<stdin>", True),
        ("/tmp/ipykernel_12/1.py", True),
        ("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("/usr/lib/python3.11/re/__init__.py", False),
        ("/opt/diagd/probes/diagd/probes/collectives.py", False),
        ("/home/me/pytorch/torch/distributed/distributed_c10d.py", False),
        ("/home/me/torch/utils/data.py", True),
        ("/home/me/libs/torch/autograd/graph.py", False),
        ("/home/me/libs/torch/nn/modules/linear.py", False),
        ("<frozen runpy>", False),
        ("<string>", False),
        ("/lib/x86_64-linux-gnu/libc.so.6", False),
        ("", False),
    ],
)
def test_whose_a_file_is(file: str, user: bool) -> None:
    assert frames.is_user(file) is user


def test_what_ranks_tell_to_be_installed_is_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_told", set())
    assert frames.is_user("/data/deps/numpy/core.py")
    frames.know(["/data/deps/", "relative/", "/data/without", 7, *(f"/many/{n}/" for n in range(99))])
    assert not frames.is_user("/data/deps/numpy/core.py")
    assert frames.is_user("/data/without/train.py")
    assert len(frames._told) == frames.MOST


def test_a_person_in_a_debugger_or_at_a_prompt_is_seen() -> None:
    assert frames.person_at([frames.make("interaction", "/usr/lib/python3.11/pdb.py", 1)]) == "pdb"
    assert frames.person_at([frames.make("raw_input", "/usr/lib/python3.11/code.py", 1)]) == "prompt"
    assert (
        frames.person_at(
            [
                frames.make("select", "/lib/python3.11/selectors.py", 1),
                frames.make("run", "/venv/lib/python3.11/site-packages/ipykernel/kernelapp.py", 1),
            ]
        )
        == "prompt"
    )
    assert frames.person_at([frames.make("main", "train.py", 1)]) == ""


def test_a_job_that_runs_on_under_a_debugger_is_held_by_nobody() -> None:
    stack = [
        ("all_reduce", "/venv/lib/python3.11/site-packages/torch/x.py"),
        ("main", "train.py"),
        ("run", "/lib/python3.11/bdb.py"),
    ]
    assert frames.person_at([frames.make(function, file, 1) for function, file in stack]) == ""


def stack(*names: str) -> Stack:
    found = tuple(
        Frame(name, "train.py" if name == "main" else "/lib/python3.11/x.py", 4, name == "main") for name in names
    )
    return Stack(1, "rank", "S", (Thread(1, "MainThread", found, main=True),), 0.0)


def test_equal_stacks_are_one_group_and_the_odd_one_stands_out() -> None:
    stacks = {rank: stack("match", "main") if rank == 3 else stack("all_reduce", "main") for rank in range(8)}
    stacks[8] = Stack(1, "rank", "D", (), 0.0, note="no permission")
    assert [(group.members, grouping.place(group.frames)) for group in grouping.group_stacks(stacks)] == [
        ((0, 1, 2, 4, 5, 6, 7), "all_reduce ← main train.py:4"),
        ((3,), "match ← main train.py:4"),
        ((8,), "no stack"),
    ]


RAW = """thread (41): bgth;Thread._bootstrap (/usr/lib/python3.11/threading.py:1002);bg (/job/train.py:8) 29
thread (40): MainThread;<module> (/job/train.py:11);Loader.slow part (/job/my (old) files/train.py:3) 6
thread (40): MainThread;<module> (/job/train.py:11);burn (/job/train.py:6) 23
thread (40): MainThread 2
no count here
"""


def test_samples_are_the_main_threads_places_most_often_first() -> None:
    found = pyspy.parse_samples(RAW, 40)
    assert [times for _, times in found] == [23, 6]
    assert [frame.function for frame in found[0][0]] == ["burn", "<module>"]
    assert (found[1][0][0].file, found[1][0][0].line) == ("/job/my (old) files/train.py", 3)
    assert all(frame.user for places, _ in found for frame in places)


def test_a_running_process_is_sampled_where_it_spends_its_time(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(
        "import time\ndef rests():\n    time.sleep(0.05)\ndef hurries():\n    pass\n"
        "print('up', flush=True)\nwhile True:\n    rests()\n    hurries()\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            found = pyspy.sample(process.pid)
        finally:
            process.kill()
    assert found[0][0][0].function == "rests"
    assert found[0][1] >= 5


def test_a_process_that_is_not_there_gives_no_samples() -> None:
    with pytest.raises(NoStack):
        pyspy.sample(2**22 - 3)
