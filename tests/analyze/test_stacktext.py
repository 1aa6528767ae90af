"""A dump folder's stacks come back as they were written."""

from diagd.daemon.agent.dump_parts import render
from diagd.daemon.analyze.stacktext import parse
from diagd.daemon.state.model import Frame, Stack, Thread

INSTALLED = Frame("poll", "/usr/lib/python3.11/selectors.py", 415, user=False)
OWN = Frame("<listcomp>", "/job/my data (v2)/set.py", 7)


def test_stacks_of_a_rank_and_its_worker_come_back() -> None:
    main = Thread(100, "MainThread", (INSTALLED, OWN), main=True)
    other = Thread(104, "pin memory", (INSTALLED,), holds_gil=True)
    rank = Stack(100, "rank", "S", (main, other), 5.0, syscall="futex")
    worker = Stack(110, "worker", "R", (Thread(110, "MainThread", (OWN,), main=True),), 5.0, source="faulthandler")
    assert parse(f"{render(rank)}\n\n{render(worker)}\n", 5.0) == (rank, worker)


def test_a_process_without_stacks_keeps_its_state() -> None:
    (found,) = parse(render(Stack(100, "rank", "T", (), 5.0, note="it is stopped")), 5.0)
    assert (found.pid, found.state, found.threads) == (100, "T", ())


def test_text_of_something_else_holds_no_stack() -> None:
    assert parse("Traceback (most recent call last):\n  File x", 5.0) == ()
