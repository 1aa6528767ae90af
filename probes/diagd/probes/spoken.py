"""Where the script's own code calls an operation: the lines of its modules' forward methods, of the functions that are
on the stack, and of those that they call.

Read from code objects, so that neither sources are needed nor anything of the script's is run.
"""

import dis
import re
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from diagd.probes import inventory, sites

CODES = 200  # that are looked through
MODULES = 3  # that are named with a line
_SIGNS = {"Div": "/", "Reciprocal": "/", "Mul": "*", "Pow": "**", "Add": "+", "Sub": "-", "Mm": "@", "Bmm": "@"}
_NAMES = {
    "Div": {"div", "divide", "true_divide", "normalize"}, "LinalgVectorNorm": {"norm", "vector_norm", "normalize"},
    "NllLoss": {"nll_loss", "cross_entropy"}, "NllLoss2D": {"nll_loss", "cross_entropy"},
    "Logsumexp": {"logsumexp"}, "Pow": {"pow", "float_power"}, "Mean": {"mean"}, "Std": {"std"}, "Var": {"var"},
}  # fmt: skip


class Line(NamedTuple):
    """A line that calls it, in which function, and the modules of that class."""

    file: str
    line: int
    function: str
    modules: tuple[str, ...]


def lines(operation: str, frame: FrameType | None, *, bare: bool = False) -> list[Line]:
    """The lines of the script's own code that call it, those of modules first.

    Args:
        operation: As the graph calls it, as `Log`.
        frame: From which the stack is looked through, outwards.
        bare: Only modules without parameters.
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operation).lower()
    sign, names = _SIGNS.get(operation), _NAMES.get(operation) or {snake, snake.replace("_", "")}
    found: dict[tuple[str, int], Line] = {}
    for code, modules in _codes(frame, bare):
        for line in _calls(code, sign, names):
            found.setdefault((code.co_filename, line), Line(code.co_filename, line, code.co_qualname, modules))
    return list(found.values())


def _codes(frame: FrameType | None, bare: bool) -> Iterator[tuple[CodeType, tuple[str, ...]]]:
    """Each code of the script's own, once, with the modules whose method it is."""
    seen: set[int] = set()
    pending: list[tuple[CodeType, dict[str, Any], type | None, tuple[str, ...]]] = []
    for cls, names in _modules(bare).items():
        forward = getattr(cls, "forward", None)
        if isinstance(forward, FunctionType):
            pending.append((forward.__code__, forward.__globals__, cls, names))
    while frame is not None:
        pending.append((frame.f_code, frame.f_globals, None, ()))
        frame = frame.f_back
    while pending and len(seen) < CODES:
        code, known, kind, modules = pending.pop(0)
        if id(code) in seen or not sites.is_own(code):
            continue
        seen.add(id(code))
        yield code, modules
        inner = [(held, known, kind, modules) for held in code.co_consts if isinstance(held, CodeType)]
        called = (_function(name, known, kind) for name in code.co_names)
        pending[:0] = inner
        pending += [(f.__code__, f.__globals__, kind, modules) for f in called if f is not None]


def _function(name: str, known: dict[str, Any], kind: type | None) -> FunctionType | None:
    """What a name in a code means: a function of its module's, or a method of its class."""
    for held in (known.get(name), next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
                 if kind is not None else None):  # fmt: skip
        if isinstance(held, FunctionType):
            return held
    return None


def _modules(bare: bool) -> dict[type, tuple[str, ...]]:
    """By class, the names of the models' modules of it, where they are few."""
    torch = sys.modules["torch"]
    found: dict[type, tuple[str, ...]] = {}
    for title, model in inventory.models():
        for path, module in torch.nn.Module.named_modules(model):
            if bare and next(module.parameters(), None) is not None:
                continue
            path = inventory.own_path(path)
            found[type(module)] = (*found.get(type(module), ()), f"{title}.{path}" if path else title)
    return {kind: names if len(names) <= MODULES else () for kind, names in found.items()}


def _calls(code: CodeType, sign: str | None, names: set[str]) -> Iterator[int]:
    for instruction in dis.get_instructions(code):
        positions = instruction.positions
        named = instruction.opname.startswith("LOAD_") and str(instruction.argval) in names
        signed = instruction.opname == "BINARY_OP" and instruction.argrepr.rstrip("=") == sign
        if (named or signed) and positions is not None and positions.lineno:
            yield positions.lineno
