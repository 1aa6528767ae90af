"""What a script's text does with one of its containers: where it puts something in, and whether it ever takes any out.

A list that is only ever appended to is kept for good; one that is emptied somewhere is a buffer, and a dictionary that
is asked before it is filled is a cache. Text alone: names are compared, no types are known.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from diagd.probes.use_reader import FUNCTIONS, GROWS, Place, Reader


class Uses(NamedTuple):
    """Of one container, in all the texts that were read."""

    grows: tuple[Place, ...] = ()
    empties: bool = False
    takes: bool = False  # single entries out by their keys
    counted: bool = False  # something is done by how many there are, as where they are bounded
    asked: bool = False
    escapes: bool = False  # it is handed to something that may do anything with it
    limited: bool = False  # filled only while there are fewer in it than so many

    @property
    def verdict(self) -> str:
        """kept, emptied, taken, limited, cache, or unknown: no line makes it grow, or others may empty it."""
        if self.empties:
            return "emptied"
        if self.takes:
            return "taken" if self.grows and not (self.escapes or self.counted) else "emptied"
        if self.limited:
            return "limited"
        if self.asked:
            return "cache"
        return "kept" if self.grows and not self.escapes else "unknown"


def uses(texts: Iterable[tuple[str, str]], path: str, in_function: str = "") -> Uses:
    """How the container that a path ends in (`hist.losses`, `outs`, `state['outs']`) is used in some files' texts.

    Args:
        texts: File names and their contents; what is no Python is passed over.
        in_function: Whose variable it is, where it is a plain variable of a function.
    """
    found = Uses()
    texts = list(texts)
    if path.endswith("]") and "[" in path:
        outer = uses(texts, path.rpartition("[")[0], in_function)
        found = Uses(empties=outer.empties)
    for file, text in texts:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        reader = Reader(file, path, in_function)
        reader.visit(tree)
        found = Uses(
            found.grows + tuple(reader.grows), found.empties or reader.empties or reader.root_renewed(),
            found.takes or reader.takes, found.counted or reader.counted, found.asked or reader.asked,
            found.escapes or reader.escapes, found.limited or reader.is_limited(),
        )  # fmt: skip
    return found


def grown_in(file: str, text: str, owner: str) -> list[tuple[str, Uses]]:
    """Containers that a class's methods fill, other than while they make the object, and that its text does not empty.

    Also those of the file's own variables that these methods fill.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names: dict[str, None] = {}
    at_top = {name for node in tree.body for name in _made(node)}
    for function in _methods(tree, owner):
        for node in ast.walk(function):
            names |= {path: None for target in _filled(node) if (path := _path_of(target, owner, at_top))}
    return [(name, found) for name in names if (found := uses([(file, text)], name)).grows]


def _made(node: ast.stmt) -> list[str]:
    """The variables that an assignment makes."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return []
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return [name.id for name in names if isinstance(name.ctx, ast.Store)]


def _path_of(target: ast.expr, owner: str, at_top: set[str]) -> str:
    """What to call what is filled: `Data.seen`, `Data.parts['x']`, `SEEN`; empty for anything else."""
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        return f"{owner}.{target.attr}"
    if isinstance(target, ast.Name):
        return target.id if target.id in at_top else ""
    inner, key = None, "…"
    if isinstance(target, ast.Subscript):
        inner, key = target.value, repr(target.slice.value) if isinstance(target.slice, ast.Constant) else key
    elif isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr == "setdefault":
        inner = target.func.value
    outer = _path_of(inner, owner, at_top) if inner is not None else ""
    return f"{outer}[{key}]" if outer else ""


def _methods(tree: ast.Module, owner: str) -> Iterator[ast.AST]:
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    wanted, done = [owner], set()
    while wanted:
        name = wanted.pop()
        if name not in classes or name in done:
            continue
        done.add(name)
        wanted += [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
        yield from (f for f in classes[name].body if isinstance(f, FUNCTIONS) and f.name != "__init__")


def _filled(node: ast.AST) -> list[ast.expr]:
    """What this node puts something into."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GROWS:
        return [node.func.value]
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        found: list[ast.expr] = [t.value for t in targets if isinstance(t, ast.Subscript)]
        return found + ([node.target] if isinstance(node, ast.AugAssign) else [])
    return []
