"""What the lines that a rank is seen at say it is doing: asking for the next batch, making a file durable, waiting.

A stack names a line, but neither which C function it has called nor that a function is a generator; the source does.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from diagd.daemon.agent.procfs import Procfs
from diagd.daemon.state.model import Frame

_MOST_BYTES = 2**20
DURABLE = frozenset({"fsync", "fdatasync"})
_TRAINS = ("/torch/nn/", "/torch/autograd/", "/torch/optim/", "/torch/distributed/", "/torch/_tensor.py")
_SHOWS_PROGRESS = ("/tqdm/", "/rich/", "/progressbar/", "/alive_progress/")
_QUEUES = ("/queue.py", "/multiprocessing/queues.py", "/torch/multiprocessing/queue.py")
_ANY_NAME = frozenset({"__call__", "forward", "step", "run", "backward", "wrapper", "<module>", "<lambda>"})

Loop = ast.For | ast.While
Trees = Callable[[str], ast.Module | None]


def trees(pid: int, proc: Procfs, naming: frozenset[str] = frozenset()) -> Trees:
    """How to get at the process's sources, as it sees its file system; None for what is not there or no Python.

    Args:
        naming: Files that hold none of these words are none either: to parse a large one takes half a second.
    """

    def tree(file: str) -> ast.Module | None:
        path = Path(f"{proc.root}/{pid}/root{file}" if file.startswith("/") else f"{proc.root}/{pid}/cwd/{file}")
        try:
            found = path.stat()
        except OSError:
            return None
        version = path, found.st_mtime_ns, found.st_ino
        if found.st_size > _MOST_BYTES or (naming and not _names(*version, naming)):
            return None
        return _parsed(*version)

    return tree


@lru_cache(maxsize=512)
def _names(path: Path, _changed_ns: int, _number: int, words: frozenset[str]) -> bool:
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return any(word.encode() in text for word in words)


@lru_cache(maxsize=64)
def _parsed(path: Path, _changed_ns: int, _number: int) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def makes_durable(frames: Sequence[Frame], tree_of: Trees) -> str:
    """The call by which the innermost line syncs a file (fsync, fdatasync); empty where it calls none."""
    return next((name for name in _called_in_line(frames, tree_of) if name in DURABLE), "")


def waits_for_work(frames: Sequence[Frame], tree_of: Trees) -> bool:
    """Whether the innermost line waits for an operation that was issued before: Work.wait, which leaves no frame.

    The wait of a process, a thread's event or a future of Python's leaves one.
    """
    return bool(frames) and frames[0].user and "wait" in _called_in_line(frames, tree_of)


def _called_in_line(frames: Sequence[Frame], tree_of: Trees) -> list[str]:
    """The bare names of what the innermost line calls."""
    tree = tree_of(frames[0].file) if frames else None
    if tree is None:
        return []
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _spans(node, frames[0].line))
    return [_called(call) for call in calls]


def asks_for_input(frames: Sequence[Frame], site: Frame | None, tree_of: Trees) -> bool:
    """Whether the loop that makes the steps is asking for its next batch.

    Args:
        frames: The main thread's, innermost first.
        site: Where the last backward pass was called.

    Returns:
        True only where all of this holds. A frame is at the head of a `for`, or at an assignment from `next()` or a
        queue's `get()` that each round of a loop comes to. The body of that loop calls backward: it holds the site, or
        calls, by name through functions of the same file, the one that does. What was called from there neither trains
        nor communicates, and does more than show the progress.
    """
    if site is None:
        return False
    for place, frame in enumerate(frames):
        if not frame.user or (tree := tree_of(frame.file)) is None:
            continue
        inner = frames[:place]
        if _trains(inner, site):
            return False
        if any(_reaches(tree, loop, frame, site) for loop in _asking(tree, frame.line, inner)):
            return not inner or not all(_is_in(f, _SHOWS_PROGRESS) for f in inner)
    return False


def _trains(inner: Sequence[Frame], site: Frame) -> bool:
    return any(_is_in(f, _TRAINS) or (f.file, f.function) == (site.file, site.function) for f in inner)


def _asking(tree: ast.Module, line: int, inner: Sequence[Frame]) -> Iterator[Loop]:
    """The loops that ask for more in this line."""
    for node in ast.walk(tree):
        if isinstance(node, Loop) and (_at_head(node, line) or any(_takes(one, line, inner) for one in _inside(node))):
            yield node


def _at_head(loop: Loop, line: int) -> bool:
    return isinstance(loop, ast.For) and _spans(loop.iter, line) and loop.body[0].lineno > _end(loop.iter)


def _inside(loop: Loop) -> Iterator[ast.AST]:
    """What each round comes to: of what it does under a condition, only the condition."""
    nodes: list[ast.AST] = list(loop.body)
    while nodes:
        node = nodes.pop()
        yield node
        nodes += [node.test] if isinstance(node, ast.If) else ast.iter_child_nodes(node)


def _takes(node: ast.AST, line: int, inner: Sequence[Frame]) -> bool:
    """Whether this is `x = next(it)` or `x = queue.get()`, at the line, with nothing else called in it."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or not _spans(node, line):
        return False
    if any(isinstance(part, ast.Call) for argument in node.value.args for part in ast.walk(argument)):
        return False
    name = _called(node.value)
    return name in ("next", "__next__") or (name == "get" and any(f.file.endswith(_QUEUES) for f in inner))


def _reaches(tree: ast.Module, loop: Loop, frame: Frame, site: Frame) -> bool:
    """Whether the loop's body calls backward."""
    if frame.file == site.file and loop.body[0].lineno <= site.line <= _end(loop.body[-1]):
        return True
    if site.function in _ANY_NAME:
        return False
    functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    known: set[str] = set()
    new = {name for part in loop.body for name in _calls(part)}
    while new and site.function not in known | new:
        known |= new
        new = {name for caller in new if caller in functions for name in _calls(functions[caller])} - known
    return site.function in known | new


def _calls(node: ast.AST) -> set[str]:
    return {_called(part) for part in ast.walk(node) if isinstance(part, ast.Call)}


def _called(call: ast.Call) -> str:
    """The bare name of what is called."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _spans(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= _end(node)


def _end(node: ast.expr | ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _is_in(frame: Frame, parts: Sequence[str]) -> bool:
    return any(part in frame.file for part in parts)
