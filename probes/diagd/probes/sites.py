"""Which line of the user's own code a call comes from."""

import os
import sys
import sysconfig
from types import CodeType, FrameType
from typing import Any

from diagd.probes.guard import HIDDEN
from diagd.probes.state import STATE

_MAX_KNOWN = 8192  # code made on the fly in each step must not fill the memory
_MAX_FRAMES = 200
_HIDDEN = HIDDEN[:-1]  # all names of files that begin so are ours
# In a child that multiprocessing has started, the text after -c is multiprocessing's own.
_SPAWNED = ("<string>",) if "--multiprocessing-fork" in sys.orig_argv else ()
_NOT_USER = (_HIDDEN, "<frozen", "<eval_with_key>", "<__array_function__", *_SPAWNED)
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

# By code object and instruction, which is cheaper than by file and line: a frame's line is looked up in a table.
_known: dict[tuple[int, int], int] = {}
_codes: dict[int, tuple[CodeType, int]] = {}  # also keeps the code, so that its id stays its own
_USER, _PACKAGE, _BELOW = 2, 1, 0


def _own_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    folders = [paths["stdlib"], paths["platstdlib"], os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    if torch:
        folders.append(os.path.dirname(torch))
    return tuple(os.path.join(folder, "") for folder in folders)


_folders = _own_folders()


def installed_folders() -> list[str]:
    """Folders of what is installed, beside those that are called so: torch's own, and all that lies by its side there.

    As after `pip install --target`, in a source build, or where PYTHONPATH leads to a folder of links.
    """
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if not torch or any(part in torch for part in _PACKAGES):
        return []
    folder = os.path.dirname(torch)
    beside = os.path.dirname(folder)
    try:
        is_target = any(name.startswith("torch-") and name.endswith(".dist-info") for name in os.listdir(beside))
    except OSError:
        is_target = False
    return [os.path.join(beside if is_target else folder, "")]


_installed = tuple(installed_folders())


def kind_of_file(filename: str) -> int:
    """2 the user's own, 1 an installed package's, 0 torch's, the standard library's or diagd's."""
    if filename.startswith(_NOT_USER) or f"{os.sep}torch{os.sep}" in filename.rpartition("-packages")[2][:7]:
        return _BELOW
    if any(part in filename for part in _PACKAGES):
        return _BELOW if filename.startswith(_folders[3:]) else _PACKAGE
    if filename.startswith(_folders):
        return _BELOW
    return _PACKAGE if _installed and filename.startswith(_installed) else _USER


def is_users(filename: str) -> bool:
    """Whether a file is the user's own."""
    return kind_of_file(filename) == _USER


def kind_of(code: CodeType) -> int:
    entry = _codes.get(id(code))
    if entry is not None:
        return entry[1]
    kind = kind_of_file(code.co_filename)
    if len(_codes) < _MAX_KNOWN:
        _codes[id(code)] = (code, kind)
    return kind


def is_own(code: CodeType) -> bool:
    """Whether a code is the user's own."""
    return kind_of(code) == _USER


def is_user(frame: FrameType | None) -> bool:
    """Whether a frame is the user's own code."""
    return frame is not None and kind_of(frame.f_code) == _USER


def site(frame: Any) -> int:
    """The box's string for the innermost frame of the user's, from `frame` outwards; of a package if there is none."""
    package = None
    codes = _codes
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        entry = codes.get(id(code))
        kind = entry[1] if entry is not None else kind_of(code)
        if kind == _USER:
            known = _known.get((id(code), frame.f_lasti))
            return known if known is not None else intern(frame)
        if kind == _PACKAGE and package is None:
            package = frame
        frame = frame.f_back
    return intern(package) if package is not None else 0


def innermost(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's, from this one outwards."""
    while frame is not None and not is_user(frame):
        frame = frame.f_back
    return frame


def place(frame: FrameType | None) -> tuple[str, int]:
    """File and line of the innermost frame of the user's; of none an empty name and 0."""
    frame = innermost(frame)
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def text_from(frame: FrameType | None) -> str:
    """File, line and function of the innermost frame of the user's, tabs between them; empty where there is none."""
    frame = innermost(frame)
    return f"{os.path.abspath(frame.f_code.co_filename)}\t{frame.f_lineno}\t{frame.f_code.co_name}" if frame else ""


def here() -> int:
    """The same from the caller's caller outwards."""
    return site(sys._getframe(2))


def intern(frame: FrameType) -> int:
    box = STATE.box
    if box is None:
        return 0
    code = frame.f_code
    key = (os.path.abspath(code.co_filename) if code.co_filename[:1] != "<" else code.co_filename, frame.f_lineno)
    offset = box.intern(key, f"{key[0]}\t{key[1]}\t{code.co_name}")
    if id(code) in _codes and len(_known) < _MAX_KNOWN:
        _known[id(code), frame.f_lasti] = offset
    return offset


def forget() -> None:
    """A new box has no strings yet."""
    _known.clear()


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        forget()


STATE.listeners.append(_at_switch)


def frames_of(traceback: Any, limit: int = 40) -> list[list[Any]]:
    """[function, file, line, user] of each frame of a traceback, innermost first."""
    found = []
    while traceback is not None:
        found.append(_frame(traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    return [entry for entry in found[::-1] if not entry[1].startswith(_HIDDEN)][:limit]


def frames_from(frame: FrameType | None, limit: int = 40) -> list[list[Any]]:
    """[function, file, line, user] of each frame of a stack, innermost first."""
    found: list[list[Any]] = []
    while frame is not None and len(found) < limit:
        found.append(_frame(frame, frame.f_lineno))
        frame = frame.f_back
    return [entry for entry in found if not entry[1].startswith(_HIDDEN)]


def _frame(frame: FrameType, line: int | None) -> list[Any]:
    code = frame.f_code
    name = code.co_filename
    return [code.co_name, name if name[:1] == "<" else os.path.abspath(name), line or 0, kind_of(code) == _USER]
