"""Where NaN and infinities come from: looked for once in the graph of a loss that is not finite, before its backward.

The graph holds what the forward pass has kept for the backward one, in forward order. The first operation that has kept
such a value was given it by the one before, or made it; where none has, one did that keeps nothing of it.

The fact `nonfinite/origin` holds the operation, the parameters behind it and what it computed, tabs between them; for
the operation stands `input` where such values came in with the data, `made` where the data are finite and the model has
made them before its first parameter, `weight` where a parameter holds them, and nothing where that is not known.
What begins with "first seen" may have come from an operation before it that has kept nothing. The fact
`nonfinite/places` holds the lines of the script's own code that call the operation, or else the one that called
backward: file, line, function, modules and which of both, tabs between them, one line of text for each.
"""

import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from diagd.probes import fed, graph, later, makers, nodes, sites, spoken
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS

LOOKS = 2
OVER = 8  # finite losses in a row after which such a stretch is over: of several in turn one alone may be finite
SEEN = "first seen in the result of {}, which may have been given it"
GIVEN = "first seen in what {} was given"
UNKNOWN = "?"
NAMES = 6
PLACES = 4  # more lines say nothing
AHEAD = ("Div", "Log", "Sqrt", "Rsqrt", "Reciprocal", "Pow")  # which a model may normalise its input with


class _Origin:
    """How often it was looked for."""

    def __init__(self) -> None:
        self.looks = 0
        self.finite = 0  # losses in a row since the last that was not


ORIGIN = _Origin()


def look(root: Any, step: int, frame: FrameType | None = None) -> None:
    """The loss is not finite; called where that is known before the graph is gone, so not on a device.

    Args:
        root: The loss.
        step: The training step.
        frame: From which on outwards the script's own code called its backward.
    """
    follows = ORIGIN.looks > 0 and ORIGIN.finite < OVER
    ORIGIN.finite = 0
    if follows or ORIGIN.looks >= LOOKS or root.grad_fn is None:
        return  # of a stretch of such losses the first says where it began; the others' weights have it too
    ORIGIN.looks += 1
    torch = sys.modules["torch"]
    with later.unseen(torch):
        held = _bad_weights(torch, root)
        if held:
            SIGNALS.fact("nonfinite/origin", f"weight\t{', '.join(held[:NAMES])}\t", step)
            return
        node, word, why = _first(torch, root.grad_fn, graph.kept(root))
    names = dict.fromkeys(graph.behind(node))
    name = "" if word == UNKNOWN else nodes.operation(node)
    word = word.removeprefix(UNKNOWN)
    SIGNALS.fact("nonfinite/origin", f"{word or name}\t{', '.join([*names][:NAMES])}\t{why}", step)
    lines, what = _lines(name, word, why, frame), "calls"
    if not 0 < len(lines) <= PLACES:
        lines, what = [line] if (line := _where_called(frame)) is not None else [], "backward"
    SIGNALS.fact("nonfinite/places", "\n".join(_told(line, what) for line in lines), step)


def _lines(name: str, word: str, why: str, frame: FrameType | None) -> list[spoken.Line]:
    """The script's own that call it, or, ahead of all parameters, that may have made it."""
    if word == "made":
        found = [line for one in AHEAD for line in spoken.lines(one, None, bare=True)]
        return list(dict.fromkeys(found))
    return spoken.lines(name, frame) if why and not word else []


def _told(line: spoken.Line, what: str) -> str:
    fields = os.path.abspath(line.file), str(line.line), line.function, ", ".join(line.modules), what
    return "\t".join(fields)


def _where_called(frame: FrameType | None) -> spoken.Line | None:
    frame = sites.innermost(frame)
    return spoken.Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname, ()) if frame else None


def _bad_weights(torch: Any, root: Any) -> list[str]:
    """The names of parameters that hold such values themselves, as after a step with such gradients."""
    held = [(leaf, tensor) for leaf in graph.leaves(root) if (tensor := later.plain(leaf)) is not None]
    # Of a DTensor what lies here: to ask it as a whole is a collective.
    bad = {id(leaf) for leaf, tensor in held if tensor.numel() <= graph.ELEMENTS and not makers.finite(torch, tensor)}
    return [one.name for one, held in NAMED.held() if id(held) in bad] or ["?"] * min(len(bad), 1)


def _first(torch: Any, end: Any, found: list[tuple[int, Any, makers.Named]]) -> tuple[Any, str, str]:
    """The node that made the first such value, a word for it if not its operation, and what it computed."""
    kept = {id(node): named for _, node, named in found}
    bad = next((one for one in graph.distinct(found) if not makers.finite(torch, one[2])), None)
    node = bad[1] if bad is not None else end
    made = makers.maker(torch, node, kept)
    if made is not None:
        return made.node, "", made.why
    if bad is None:
        only = makers.suspect(torch, end, kept)
        return (end, UNKNOWN, "") if only is None else (only, "", f"the result of {nodes.operation(only)}")
    tensor = bad[2]
    names = [name for name, held in kept[id(node)].items() if held is tensor]
    if any(makers.is_constant(node, name) for name in names):
        return node, "input", ""
    own = any(name.startswith("result") for name in names)
    if own and not makers.hands_on(node):
        name = nodes.operation(node)
        return node, "", f"the result of {name}" if makers.may_make(node) else SEEN.format(name)
    giver = next(_givers(node), None)
    if giver is None:
        return node, "made" if fed.was_finite(torch) else "input", ""
    if makers.seldom_makes(giver) and not own:
        return node, "", GIVEN.format(nodes.operation(node))
    return giver, f"what {nodes.operation(node)} was given" if own else "", ""


def _givers(node: Any) -> Iterator[Any]:
    """The nodes whose outputs it was given, but for parameters."""
    for before, _ in node.next_functions:
        if (end := _end(before)) is not None and nodes.leaf(end) is None:
            yield before


def _end(node: Any) -> Any:
    """Where a chain of nodes with one input each ends."""
    while node is not None and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    return node
