"""Parse what Python's faulthandler writes when a registered signal arrives."""

import re

from diagd.daemon.agent import frames
from diagd.daemon.state.model import Frame, Thread

_THREAD = re.compile(
    r"^(?:Stack|(?:Current thread|Thread) (?P<ident>0x[0-9a-f]+)(?: \[(?P<name>[^\]]*)\])?.*)"
    r" \(most recent call first\):"
)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')


def parse(text: str, pid: int) -> tuple[Thread, ...]:
    """The threads of the last dump in the text, the main thread first.

    Faulthandler walks the interpreter's threads from the newest to the oldest, so the main one stands last; it gives no
    native thread ids. A forked child's dump shows its parent's frames below its own: they are cut off.
    """
    found: list[tuple[str, list[Frame]]] = []
    seen: set[str] = set()
    for line in text.splitlines():
        if (header := _THREAD.match(line)) is not None:
            if header["ident"] in seen or header["ident"] is None:
                seen, found = set(), []  # two readers asked at the same time: a new dump begins
            seen.add(header["ident"] or "")
            found.append((header["name"] or "", []))
        elif (frame := _FRAME.match(line)) is not None and found:
            number = int(frame["line"]) if frame["line"].isdecimal() else 0
            found[-1][1].append(frames.make(frame["function"], frame["file"], number))
    threads = [Thread(0, name, frames.own(stack)) for name, stack in found]
    if not threads or text.rstrip().endswith("\n..."):  # "..." after 100 threads: the main one is missing
        return tuple(threads)
    main = Thread(pid, threads[-1].name or "MainThread", threads[-1].frames, main=True)
    return (main, *(thread for thread in reversed(threads[:-1]) if not frames.is_ours(thread.frames)))
