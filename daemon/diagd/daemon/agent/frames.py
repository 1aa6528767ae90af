"""Whose code a frame is, and what in a stack belongs to the process that it was taken from."""

import re
from collections.abc import Iterable, Sequence

from diagd.daemon.state.model import Frame

_INSTALLED = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+t?/|/diagd/(probes|daemon|proto|cuda_ext)/|\.zip/")
# Wherever it lies: a checkout, a folder on PYTHONPATH.
_TORCH = re.compile(
    r"/pytorch[^/]*/torch/|/torch/(_tensor\.py|_ops\.py|autograd/|distributed/|optim/|utils/data/|_dynamo/|_inductor/"
    r"|nn/(modules|parallel|functional\.py))"
)
_NATIVE = re.compile(r"\.so(\.\d+)*$|/bin/python[\d.]*$")
MOST = 64  # such folders on one node
_DATA_LOADER = "torch/utils/data/_utils/worker.py"
_DEBUGGERS = re.compile(r"(^|/)(pdb|bdb)\.py$|/(IPython/core/debugger|ipdb/|debugpy/|_pydevd_bundle/|pudb/)")
_PROMPTS = re.compile(r"/(prompt_toolkit|IPython|ipykernel)/|(^|/)code\.py$")


def is_user(file: str) -> bool:
    """Whether a file is the user's own: not an installed package's, the standard library's, diagd's or made-up code."""
    if not file or file.startswith(
        ("<frozen", "<string>", "<diagd", "<attrs", "<eval_with_key>", "<__array_function__")
    ):
        return False
    if _told and file.startswith(tuple(_told)):
        return False
    return not (_INSTALLED.search(file) or _TORCH.search(file) or _NATIVE.search(file))


_told: set[str] = set()


def know(folders: Iterable[object]) -> None:
    """What is installed in folders of other names, as ranks tell of theirs: absolute paths that end with a slash."""
    told = (folder for folder in folders if isinstance(folder, str))
    _told.update(folder for folder in told if len(_told) < MOST and folder.startswith("/") and folder.endswith("/"))


def make(function: str, file: str, line: int) -> Frame:
    """A frame, with whose it is."""
    return Frame(function, file, line, is_user(file))


def own(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of the process itself, innermost first: a forked worker shows its parent's frames below its own."""
    for n, frame in enumerate(frames):
        if frame.function == "_bootstrap" and frame.file.endswith("multiprocessing/process.py"):
            return tuple(frames[: n + 1])
    return tuple(frames)


def in_data_loader(frames: Sequence[Frame]) -> bool:
    """Whether these are a data worker's."""
    return any(frame.function == "_worker_loop" and frame.file.endswith(_DATA_LOADER) for frame in frames)


def person_at(frames: Sequence[Frame]) -> str:
    """Say "pdb" or "prompt" where a person holds the process; empty otherwise.

    Only what the user's innermost line has called counts: a job that runs on under a debugger, or in a notebook's
    cell, has the debugger's frames further out.
    """
    for frame in frames:
        if frame.user:
            return ""
        if _DEBUGGERS.search(frame.file):
            return "pdb"
        if _PROMPTS.search(frame.file):
            return "prompt"
    return ""


def is_ours(frames: Sequence[Frame]) -> bool:
    """Whether a thread is diagd's own."""
    return any(frame.ours for frame in frames) and not any(frame.user for frame in frames)
