"""A dump folder's stacks.txt back into stacks; `dump_parts.render` is the way there."""

import re
from collections.abc import Iterator

from diagd.daemon.agent import frames
from diagd.daemon.state.model import Frame, Stack, Thread

_PROCESS = re.compile(
    r"^(?P<role>\w+) process (?P<pid>\d+), state (?P<state>\w?)(?:, in (?P<call>\w+))?\s+\((?P<by>[^)]*)\)"
)
_THREAD = re.compile(r"^  thread (?P<tid>\d+|\?) (?P<name>.*?)(?P<gil>, holds the GIL)?$")
_FRAME = re.compile(r"^   [* ] (?P<function>.*?) \((?P<file>.*):(?P<line>\d+)\)$")


def parse(text: str, taken_s: float) -> tuple[Stack, ...]:
    """The stacks of the rank and its children; lines that are none are passed over."""
    return tuple(_stack(head, lines, taken_s) for head, lines in _blocks(text, _PROCESS))


def _blocks(text: str, head: re.Pattern[str]) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Each heading with the lines below it."""
    current: tuple[re.Match[str], list[str]] | None = None
    for line in text.splitlines():
        if (matched := head.match(line)) is not None:
            if current is not None:
                yield current
            current = (matched, [])
        elif current is not None:
            current[1].append(line)
    if current is not None:
        yield current


def _stack(head: re.Match[str], lines: list[str], taken_s: float) -> Stack:
    pid = int(head["pid"])
    threads = tuple(_thread(found, below, pid) for found, below in _blocks("\n".join(lines), _THREAD))
    return Stack(pid, head["role"], head["state"], threads, taken_s, source=head["by"], syscall=head["call"] or "")


def _thread(head: re.Match[str], lines: list[str], pid: int) -> Thread:
    tid = int(head["tid"]) if head["tid"].isdecimal() else 0
    found = tuple(frame for line in lines if (frame := _frame(line)) is not None)
    return Thread(tid, head["name"], found, main=tid == pid, holds_gil=True if head["gil"] else None)


def _frame(line: str) -> Frame | None:
    found = _FRAME.match(line)
    return frames.make(found["function"], found["file"], int(found["line"])) if found is not None else None
