"""What a script's text does with one of its containers: where it puts something in, and whether it ever takes any out.

A list that is only ever appended to is kept for good; one that is emptied somewhere is a buffer, and a dictionary that
is asked before it is filled is a cache. Text alone: names are compared, no types are known.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_GROWS = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault"})
_EMPTIES = frozenset({"clear", "pop", "popleft", "popitem", "remove", "discard"})
_ASKS = frozenset({"get", "setdefault", "__contains__", "has_key"})
_HARMLESS = frozenset(
    {"len", "sum", "min", "max", "sorted", "list", "tuple", "set", "enumerate", "zip", "range", "print", "str", "repr",
     "iter", "reversed", "any", "all", "stack", "cat", "concatenate", "mean", "median", "std", "array", "asarray",
     "tensor", "as_tensor", "vstack", "hstack", "plot", "join", "map", "filter", "isinstance", "bool", "percentile",
     "dumps", "dump", "save", "info", "debug", "format"}
)  # fmt: skip
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Place(NamedTuple):
    """A line of a file, in a function."""

    function: str
    file: str
    line: int


class Uses(NamedTuple):
    """Of one container, in all the texts that were read."""

    grows: tuple[Place, ...] = ()
    empties: bool = False
    asked: bool = False
    escapes: bool = False  # it is handed to something that may do anything with it

    @property
    def verdict(self) -> str:
        """kept, emptied, cache, or unknown where no line was found that makes it grow, or others may empty it."""
        if self.empties:
            return "emptied"
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
    for file, text in texts:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        reader = _Reader(file, path, in_function)
        reader.visit(tree)
        found = Uses(
            found.grows + tuple(reader.grows), found.empties or reader.empties or reader.root_renewed(),
            found.asked or reader.asked, found.escapes or reader.escapes,
        )  # fmt: skip
    return found


def grown_in(file: str, text: str, owner: str) -> list[tuple[str, Uses]]:
    """Containers that a class's methods fill, other than while they make the object, and that its text does not empty.

    Also global ones that functions of the same file fill.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names: dict[str, None] = {}
    for function in _methods(tree, owner):
        for node in ast.walk(function):
            for target in _filled(node):
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    names[f"{owner}.{target.attr}"] = None
    return [(name, found) for name in names if (found := uses([(file, text)], name)).grows]


def _methods(tree: ast.Module, owner: str) -> Iterator[ast.AST]:
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    wanted, done = [owner], set()
    while wanted:
        name = wanted.pop()
        if name not in classes or name in done:
            continue
        done.add(name)
        wanted += [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
        yield from (f for f in classes[name].body if isinstance(f, _FUNCTIONS) and f.name != "__init__")


def _filled(node: ast.AST) -> list[ast.expr]:
    """What this node puts something into."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
        return [node.func.value]
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        found: list[ast.expr] = [t.value for t in targets if isinstance(t, ast.Subscript)]
        return found + ([node.target] if isinstance(node, ast.AugAssign) else [])
    return []


class _Reader(ast.NodeVisitor):
    """Reads one file."""

    def __init__(self, file: str, path: str, in_function: str) -> None:
        self.grows: list[Place] = []
        self.empties = self.asked = self.escapes = False
        self._file = file
        self._bare = not any(mark in path for mark in ".[")
        self._name = _last(path)
        self._root = path.partition(".")[0].partition("[")[0]
        self._in_function = in_function if self._bare else ""
        self._functions: list[str] = []
        self._loops: list[ast.AST] = []
        self._grown_in: set[ast.AST] = set()
        self._renewed_in: list[tuple[str, tuple[ast.AST, ...]]] = []
        self._root_in_loop = False

    def root_renewed(self) -> bool:
        """Whether it is made anew in a loop that also fills it, or its owner is."""
        return self._root_in_loop or any(self._grown_in.intersection(loops) for _, loops in self._renewed_in)

    def visit(self, node: ast.AST) -> None:
        """Keep track of where we are."""
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            self._functions.append(node.name)
            loops, self._loops = self._loops, []
            super().visit(node)
            self._functions.pop()
            self._loops = loops
        elif isinstance(node, _LOOPS):
            self._loops.append(node)
            super().visit(node)
            self._loops.pop()
        else:
            super().visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """`x.append(…)`, `x.clear()`, `f(x)`."""
        function = node.func
        if isinstance(function, ast.Attribute) and self._is(function.value):
            self.asked |= function.attr in _ASKS
            self.empties |= function.attr in _EMPTIES
            if function.attr in _GROWS:
                self._grow(node)
        else:
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            self.escapes |= called not in _HARMLESS and any(self._is(argument) for argument in node.args)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """`key in x`."""
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            self.asked |= any(self._is(other) for other in node.comparators)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        """`del x`, `del x[0]`, `del x[:]`."""
        self.empties |= any(self._is(t) or (isinstance(t, ast.Subscript) and self._is(t.value)) for t in node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """`x += …`, `x[key] += …`."""
        if self._is(node.target):
            self._grow(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """`x = …`, `x[key] = …`, `x[:] = …`."""
        for target in node.targets:
            self._assigned(target, node.value, node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """`x: list[float] = []`."""
        if node.value is not None:
            self._assigned(node.target, node.value, node)
        self.generic_visit(node)

    def _assigned(self, target: ast.expr, value: ast.expr, node: ast.AST) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._assigned(part, value, node)
        elif isinstance(target, ast.Subscript) and self._is(target.value):
            if isinstance(target.slice, ast.Slice):
                self.empties = True
            else:
                self._grow(node)
        elif self._is(target):
            self._renewed(value, node)
        elif not self._bare and isinstance(target, ast.Name) and target.id == self._root and self._loops:
            self._root_in_loop = True

    def _renewed(self, value: ast.expr, node: ast.AST) -> None:
        """The name gets another value: an older one with more, a part of the older one, or a new one."""
        if isinstance(value, ast.Subscript) and self._is(value.value):
            self.empties = True
        elif any(self._is(part) for part in ast.walk(value) if isinstance(part, ast.expr)):
            self._grow(node)
        elif isinstance(self._target_of_attribute(node), ast.Attribute):
            self.empties |= not self._functions or self._functions[-1] not in ("__init__", "__post_init__", "__new__")
        else:
            self._renewed_in.append((self._functions[-1] if self._functions else "", tuple(self._loops)))

    @staticmethod
    def _target_of_attribute(node: ast.AST) -> ast.expr | None:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        return target if isinstance(target, ast.expr) else None

    def _grow(self, node: ast.AST) -> None:
        functions = [name for name in self._functions if name]
        where = ".".join(functions[-2:]) if functions else "<module>"
        self.grows.append(Place(where, self._file, getattr(node, "lineno", 0)))
        self._grown_in.update(self._loops)

    def _is(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            known = (
                not self._in_function or self._in_function in ("", "<module>") or self._in_function in self._functions
            )
            return self._bare and node.id == self._name and known
        if isinstance(node, ast.Attribute):
            return not self._bare and node.attr == self._name
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return not self._bare and str(node.slice.value) == self._name
        return False


def _last(path: str) -> str:
    """`losses` of `hist.losses`, `outs` of `state['outs']`."""
    tail = path.rpartition(".")[2]
    if tail.endswith("]") and "[" in tail:
        return tail.rpartition("[")[2].rstrip("]").strip("'\"")
    return tail
