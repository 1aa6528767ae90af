"""Where float16 ran out: looked for in the graph of a loss that is inf or NaN, right before its backward pass.

The graph holds what the forward pass has kept for the backward one. The first product in forward order whose operands
are finite and whose largest element, computed in float32, is beyond 65504 is the origin; else the first inf in float16.

A norm hides it: its mean of squares is inf, the root of its inverse exactly 0, and what comes out is finite. That is
looked for now and then, whatever the loss is.

Signals `overflow/value`, that product's largest absolute value, and the fact `overflow/at`: operation, dtype, and the
parameters behind it, a tab between them.
"""

import math
import sys
import time
from typing import Any

from diagd.probes import graph, later, nodes, turns
from diagd.probes.box.layout import Live
from diagd.probes.budget import BUDGET
from diagd.probes.fast import FAST, Fast
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

LARGEST = 65504.0  # of float16
LOOKS = 3
PRODUCTS = 32
FLOPS = 1 << 30  # of one of them
EVERY = 32  # steps between two looks at norms
NORMS = 64
_OPERANDS = (("self", "mat2"), ("mat1", "mat2"), ("batch1", "batch2"))


class _Halves:
    """Whether there is anything to look for."""

    def __init__(self) -> None:
        self.seen = False  # some output was in float16
        self.suspected = False  # steps were skipped, so the next loss is looked at whatever it is
        self.looks = 0
        self.next = 0  # step at which norms are looked at
        self.lost = NORMS  # the first of them that has divided by inf


HALVES = _Halves()


def saw_halves() -> None:
    """The script computes in float16."""
    HALVES.seen = True
    FAST[Fast.CASTS] = 1


def forget() -> None:
    """A forked child begins anew."""
    HALVES.__init__()  # type: ignore[misc]


def before_backward(roots: Any) -> None:
    """A backward pass begins, not inside another; called only where float16 is in use.

    Args:
        roots: What torch.autograd.backward was given: a tensor, or several.
    """
    torch = sys.modules["torch"]
    root: Any = roots if isinstance(roots, torch.Tensor) else next(iter(roots), None)
    if type(root) is not torch.Tensor or root.numel() != 1 or not later.possible(torch):
        return
    _look_at_norms(torch, root)
    if HALVES.looks >= LOOKS:
        return
    bad = root.device.type == "cpu" and not math.isfinite(root.item())
    if bad or HALVES.suspected:
        HALVES.looks += 1
        HALVES.suspected = False
        with later.unseen(torch):
            _look(torch, root)


def _look_at_norms(torch: Any, root: Any) -> None:
    step = max(STATE.live[int(Live.STEP)], 0) + 1
    if step < HALVES.next or root.grad_fn is None or BUDGET.rests(step):
        return
    HALVES.next = turns.sampled(step, EVERY)
    began = time.thread_time_ns()
    roots = [(node, tensor) for node in graph.nodes_of(root) if (tensor := _inverse_root(node)) is not None][:NORMS]
    if roots:
        with later.unseen(torch):
            lost = torch.stack([(tensor == 0).any().to(root.device, torch.float64) for _, tensor in roots])
            later.read(lost, _note_lost)  # which holds no graph: a device may be steps behind
    if HALVES.lost < len(roots):
        HALVES.next = turns.NEVER
        _told(roots[HALVES.lost][0], math.inf, step)
    BUDGET.spent(time.thread_time_ns() - began)


def _note_lost(values: list[float]) -> None:
    """Which of the norms it was, for this look or, where a device has told it late, for the next."""
    HALVES.lost = next((number for number, value in enumerate(values) if value), NORMS)
    if HALVES.lost < NORMS:
        HALVES.next = 0


def _inverse_root(node: Any) -> Any:
    """What 1 / sqrt(x) has come to: 0 only where x is inf, in whatever precision that is."""
    if nodes.operation(node) != "Rsqrt":
        return None
    raw = getattr(node, "_raw_saved_result", None)
    return later.plain(raw.data) if raw is not None and raw.unpack_hook is None and raw.data is not None else None


def _look(torch: Any, root: Any) -> None:
    kept = graph.kept(root)
    products = [
        (order, node, product) for order, node, named in kept
        if (product := _product(torch, named)) is not None
    ][:PRODUCTS]  # fmt: skip
    tensors = graph.distinct(kept)
    if not tensors and not products:
        return
    step = max(STATE.live[int(Live.STEP)], 0) + 1
    device = root.device
    numbers = [tensor.detach().abs().amax().to(device, torch.float64) for _, _, tensor in tensors]
    numbers += [tensor.detach().amax().to(device, torch.float64) for _, _, tensor in tensors]
    numbers += [product.to(device, torch.float64) for _, _, product in products]
    named = [(order, node, str(tensor.dtype)) for order, node, tensor in tensors]
    made = [(order, node) for order, node, _ in products]
    later.read(torch.stack(numbers), lambda values: _tell(named, made, values, step))


def _product(torch: Any, named: dict[str, Any]) -> Any:
    """The largest element of what a product in float16 would be in float32; None where it is none."""
    for left, right in _OPERANDS:
        a, b = named.get(left), named.get(right)
        if a is None or b is None or a.dtype is not torch.float16 or b.dtype is not torch.float16 or a.dim() < 2:
            continue
        if b.dim() != a.dim() or a.shape[-1] != b.shape[-2] or a.numel() * b.shape[-1] > FLOPS:
            continue
        return (a.detach().float() @ b.detach().float()).abs().amax()
    return None


def _tell(tensors: list[tuple[int, Any, str]], products: list[tuple[int, Any]], values: list[float], step: int) -> None:
    count = len(tensors)
    sizes, tops, made = values[:count], values[count : 2 * count], values[2 * count :]
    bad = [(order, node, dtype, top) for (order, node, dtype), size, top in zip(tensors, sizes, tops, strict=True)
           if not math.isfinite(size)]  # fmt: skip
    first = bad[0][0] if bad else None
    for (order, node), size in zip(products, made, strict=True):
        if LARGEST < size < math.inf and (first is None or order < first):
            _told(node, size, step)
            return
    # Masks hold -inf; and what is inf from the first operation on came with the data.
    if bad and bad[0][2] == "torch.float16" and bad[0][3] == math.inf and bad[0][0] > tensors[0][0]:
        _told(bad[0][1], math.inf, step)


def _told(node: Any, size: float, step: int) -> None:
    name = nodes.operation(node)
    SIGNALS.fact("overflow/at", f"{name}\tfloat16\t{','.join(graph.behind(node))}", step)
    SIGNALS.record("overflow/value", size, step)
