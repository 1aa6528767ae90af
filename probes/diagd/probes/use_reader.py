"""Reads one Python file for where a container of a given name is filled, emptied, looked up or handed on."""

import ast
import re
from typing import NamedTuple

GROWS = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault"})
_EMPTIES = frozenset({"clear", "pop", "popleft", "popitem", "remove", "discard"})
_ASKS = frozenset({"get", "setdefault", "__contains__", "has_key"})
_HARMLESS = frozenset(
    {"len", "sum", "min", "max", "sorted", "list", "tuple", "set", "enumerate", "zip", "range", "print", "str", "repr",
     "iter", "reversed", "any", "all", "stack", "cat", "concatenate", "mean", "median", "std", "array", "asarray",
     "tensor", "as_tensor", "vstack", "hstack", "plot", "join", "map", "filter", "isinstance", "bool", "percentile",
     "dumps", "dump", "save", "info", "debug", "format"}
)  # fmt: skip
_PACKS = frozenset({"stack", "cat", "concatenate", "vstack", "hstack", "array", "asarray", "tensor", "as_tensor"})
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Place(NamedTuple):
    """A line of a file, in a function."""

    function: str
    file: str
    line: int


class Reader(ast.NodeVisitor):
    """Reads one file."""

    def __init__(self, file: str, path: str, in_function: str) -> None:
        self.grows: list[Place] = []
        self.empties = self.asked = self.escapes = False
        self.takes = False  # single entries out by their keys, which may leave others
        self.counted = False  # something is done by how many there are
        self._limited = 0  # of the places that fill it, those that are reached only while it is not full
        self._below_limit = 0  # how many such conditions we are inside of
        self._file = file
        self._bare = not any(mark in path for mark in ".[")
        self._name = _last(path)
        self._outer = _last(path.rpartition("[")[0]) if path.endswith("]") else ""
        self._between = set(re.findall(r"\w+", path.partition(".")[2])) - {self._name}  # what leads from the root to it
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

    def is_limited(self) -> bool:
        """Whether nothing fills it once it holds so many."""
        return bool(self.grows) and self._limited == len(self.grows)

    def visit(self, node: ast.AST) -> None:
        """Keep track of where we are."""
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
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

    def visit_If(self, node: ast.If) -> None:
        """`if len(x) < most: x.append(…)`."""
        self._conditional(node.test, node.body, node.orelse)

    def visit_While(self, node: ast.While) -> None:
        """`while len(x) < most: x.append(…)`."""
        self._conditional(node.test, node.body, node.orelse)

    def _conditional(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        self.visit(test)
        below = self._is_below(test)
        self._below_limit += below
        for statement in body:
            self.visit(statement)
        self._below_limit -= below
        for statement in orelse:
            self.visit(statement)

    def _is_below(self, test: ast.expr) -> bool:
        """Whether it holds only while there are fewer in it than so many."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(self._is_below(part) for part in test.values)
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return False
        less, more = (test.left, test.comparators[0])
        if isinstance(test.ops[0], (ast.Gt, ast.GtE)):
            less, more = more, less
        elif not isinstance(test.ops[0], (ast.Lt, ast.LtE)):
            return False
        of = less.args if isinstance(less, ast.Call) and _called(less) == "len" else []
        return any(self._is(one) for one in of) and _called(more) != "len"

    def visit_Call(self, node: ast.Call) -> None:
        """`x.append(…)`, `x.clear()`, `f(x)`."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "__init__" and isinstance(function.value, ast.Name):
            of_a_base = bool(node.args) and _name_of(node.args[0]) == "self"
            self.empties |= not self._bare and not of_a_base  # its owner may be made anew in place
        if isinstance(function, ast.Attribute) and self._is(function.value):
            self.asked |= function.attr in _ASKS
            one = function.attr == "pop" and bool(node.args) and not _is_place(node.args[0])
            self.takes |= one
            self.empties |= function.attr in _EMPTIES and not one
            if function.attr in GROWS:
                self._grow(node)
        else:
            self.escapes |= _called(node) not in _HARMLESS and any(self._is(argument) for argument in node.args)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """`key in x`, `len(x) > most`."""
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            self.asked |= any(self._is(other) for other in node.comparators)
        lengths = (one for one in (node.left, *node.comparators) if _called(one) == "len")
        self.counted |= any(self._is(part) for one in lengths for part in ast.iter_child_nodes(one))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """`x[key]`, read: `x[-1]` and `x[-50:]` are looks at what came last, not at what was kept for a key."""
        index = node.slice.operand if isinstance(node.slice, ast.UnaryOp) else node.slice
        if isinstance(node.ctx, ast.Load) and not isinstance(index, (ast.Slice, ast.Constant)):
            self.asked |= self._is(node.value)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        """`del x`, `del x[0]`, `del x[:]`."""
        for target in node.targets:
            of_it = isinstance(target, ast.Subscript) and self._is(target.value)
            one = of_it and not _is_place(target.slice)  # type: ignore[attr-defined]  # of_it says that it has one
            self.takes |= one
            self.empties |= self._is(target) or (of_it and not one)

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
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            alike = len(values) == len(target.elts) and not any(isinstance(v, ast.Starred) for v in values)
            for part, given in zip(target.elts, values if alike else [value] * len(target.elts), strict=True):
                self._assigned(part, given, node)
        elif isinstance(target, ast.Subscript) and self._is(target.value):
            if isinstance(target.slice, ast.Slice):
                self.empties = True
            else:
                self._grow(node)
        elif self._is(target):
            self._renewed(target, value, node)
        elif isinstance(target, ast.Attribute) and target.attr in self._between:
            self.empties |= self._is_after_making()
        elif not self._bare and isinstance(target, ast.Name) and target.id == self._root and self._loops:
            self._root_in_loop = True

    def _renewed(self, target: ast.expr, value: ast.expr, node: ast.AST) -> None:
        """The name gets another value: an older one with more, a part of the older one, or a new one."""
        made_of_it = isinstance(value, ast.Call) and any(self._is(argument) for argument in value.args[:1])
        if (isinstance(value, ast.Subscript) and self._is(value.value)) or (made_of_it and _called(value) in _PACKS):
            self.empties = True
        elif any(self._is(part) for part in ast.walk(value) if isinstance(part, ast.expr)):
            self._grow(node)
        elif isinstance(target, ast.Attribute):
            self.empties |= self._is_after_making()
        else:
            self._renewed_in.append((self._functions[-1] if self._functions else "", tuple(self._loops)))

    def _is_after_making(self) -> bool:
        """Whether this is no part of how its owner is made."""
        return not self._functions or self._functions[-1] not in ("__init__", "__post_init__", "__new__")

    def _grow(self, node: ast.AST) -> None:
        functions = [name for name in self._functions if name]
        where = ".".join(functions[-2:]) if functions else "<module>"
        self._limited += self._below_limit > 0
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
        return not self._bare and self._is_element(node)

    def _is_element(self, node: ast.AST) -> bool:
        """`state['outs']`; `acts[name]` and `acts.setdefault(name, [])`, which may be the one that is meant."""
        if isinstance(node, ast.Subscript):
            if isinstance(node.slice, ast.Constant):
                return str(node.slice.value) == self._name
            return bool(self._outer) and not isinstance(node.slice, ast.Slice) and _name_of(node.value) == self._outer
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(function, ast.Attribute) and function.attr in ("setdefault", "get"):
            return bool(self._outer) and _name_of(function.value) == self._outer
        return False


def _is_place(index: ast.expr) -> bool:
    """Whether it says where an element stands, and no key of a dictionary's."""
    inner = index.operand if isinstance(index, ast.UnaryOp) else index
    return isinstance(inner, (ast.Slice, ast.Constant))


def _called(node: ast.AST) -> str:
    return _name_of(node.func) if isinstance(node, ast.Call) else ""


def _name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _last(path: str) -> str:
    """`losses` of `hist.losses`, `outs` of `state['outs']`."""
    tail = path.rpartition(".")[2]
    if tail.endswith("]") and "[" in tail:
        return tail.rpartition("[")[2].rstrip("]").strip("'\"")
    return tail
