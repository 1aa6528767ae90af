"""An exception that was raised in another process, and carried over as text: those of torch's data workers."""

import re
from typing import Any

from diagd.probes import sites

_BEGINS = "Original Traceback (most recent call last):"
_FRAME = re.compile(r'^ +File "(.+?)", line (\d+), in (.+)$', re.MULTILINE)
_ERROR = re.compile(r"^\S.*", re.MULTILINE | re.DOTALL)  # behind the last frame: what no longer stands back
_FRAMES = 40


def carried(message: str) -> tuple[str, list[list[Any]]]:
    """The message without the traceback, and the traceback's frames, innermost first: [function, file, line, user].

    A message without one is as it was, and has no frames.
    """
    head, found, text = message.partition(_BEGINS)
    places = list(_FRAME.finditer(text))
    if not found or not places:
        return message, []
    error = _ERROR.search(text, places[-1].end())
    frames = [[name, file, int(line), sites.is_users(file)] for file, line, name in (p.groups() for p in places[::-1])]
    return f"{head.strip()} {error[0].strip() if error else ''}".strip(), frames[:_FRAMES]
