"""What one optimizer step did to some elements of parameters in half precision: moved them, or was lost to rounding.

The distance from a number to the next is 2^(e - b) for 2^e <= |x| < 2^(e + 1), with b the bits of the fraction (7 in
bfloat16, 10 in float16); an update below half of it is rounded away (IEEE 754, round to nearest). The size of an update
is taken from what the optimizer keeps: for Adam and its kin lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps).
"""

import sys
from dataclasses import dataclass
from typing import Any

from diagd.probes import inventory
from diagd.probes.places import Place, places

ELEMENTS = 256  # of a parameter
_KNOWN = frozenset({"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"})
LUCK = 0.2  # of the distance; a rounding of the last operands can make up for a part of the half that is needed


class Row:
    """A parameter that is looked at, and is the same one for as long as its optimizer has it in this place."""

    __slots__ = ("number", "place")

    def __init__(self, place: Place, parameter: Any) -> None:
        self.place = place
        self.number = id(parameter)

    def parameter(self) -> Any:
        """What is looked at; None where it is gone."""
        there = self.place.tensor()
        return there if id(there) == self.number else None

    @property
    def group(self) -> dict[str, Any]:
        """Its group's settings."""
        optimizer = self.place.optimizer()
        found: dict[str, Any] = optimizer.param_groups[self.place.group] if optimizer is not None else {}
        return found

    def lr(self) -> float:
        """The group's learning rate now; 1 where only a device knows it."""
        lr = self.group.get("lr", 0.0)
        if not hasattr(lr, "device"):
            return float(lr)
        return float(lr) if lr.device.type == "cpu" else 1.0


@dataclass(slots=True)
class Sample:
    """Elements before a step, one parameter's behind the other's."""

    rows: list[Row]
    parameters: list[Any]
    counts: list[int]
    before: Any
    gradients: Any


@dataclass(slots=True)
class Seen:
    """The same elements with what the step made of them; `update` and `second` are None where not known."""

    sample: Sample
    after: Any
    felt: Any  # the gradient is not zero
    update: Any
    second: Any


def rows(optimizer: Any, most: int) -> list[Row]:
    """The trained parameters in half precision, of the dtype and device that the first of them has."""
    torch = sys.modules["torch"]
    half = torch.float16, torch.bfloat16
    found = [
        (parameter, place)
        for place, parameter in places(optimizer)
        if parameter.dtype in half and parameter.requires_grad and inventory.local(parameter) is not None
    ]
    alike = [(p, place) for p, place in found if (p.dtype, p.device) == (found[0][0].dtype, found[0][0].device)]
    every = max(1, -(-len(alike) // most))
    # Those with one dimension are few and small, and stand at 1 more often than others.
    chosen = [pair for number, pair in enumerate(alike) if pair[0].dim() < 2 or number % every == 0][:most]
    return [Row(place, parameter) for parameter, place in chosen]


def before(wanted: list[Row]) -> Sample | None:
    """What the elements are before a step; None where none of them is about to change."""
    there = [(row, p, p.grad) for row in wanted if (p := row.parameter()) is not None and p.grad is not None]
    there = [(row, p, grad) for row, p, grad in there if row.lr() > 0]
    plain = [(row, p, mine, grad) for row, p, g in there
             if (mine := inventory.local(p)) is not None and (grad := inventory.local(g)) is not None
             and mine.shape == grad.shape]  # fmt: skip
    if not plain:
        return None
    torch = sys.modules["torch"]
    pieces = [pick(mine) for _, _, mine, _ in plain]
    gradients = torch.cat([pick(grad) for _, _, _, grad in plain])
    return Sample(
        [row for row, *_ in plain], [p for _, p, *_ in plain], [len(piece) for piece in pieces],
        torch.cat(pieces), gradients,
    )  # fmt: skip


def pick(tensor: Any) -> Any:
    """The same elements of every tensor of this shape; a view where its memory allows it."""
    count = tensor.numel()
    if count <= ELEMENTS:
        return tensor.detach().reshape(-1)
    stride = count // ELEMENTS
    stride -= stride > 1 and stride % 2 == 0  # or all would lie in one column of a usual matrix
    return tensor.detach().reshape(-1)[: ELEMENTS * stride : stride]


def after(optimizer: Any, sample: Sample) -> Seen | None:
    """What the step made of them; None where the parameters are not what they were."""
    torch = sys.modules["torch"]
    mine = [inventory.local(parameter) for parameter in sample.parameters]
    if any(tensor is None or tensor.dtype != sample.before.dtype for tensor in mine):
        return None
    kept = [optimizer.__dict__["state"].get(parameter) or {} for parameter in sample.parameters]
    if any(_keeps_more(one, tensor) for one, tensor in zip(kept, mine, strict=True)):
        return None
    now = torch.cat([pick(tensor) for tensor in mine])
    if len(now) != len(sample.before):
        return None
    update, second = _update(optimizer, sample, kept)
    return Seen(sample, now, sample.gradients != 0, update, second)


def _keeps_more(kept: dict[str, Any], parameter: Any) -> bool:
    """Whether it keeps the parameter in full precision, or what rounding has lost, or something not known here."""
    return any(
        key not in _KNOWN and hasattr(value, "untyped_storage") and value.shape == parameter.shape and value.dim()
        for key, value in kept.items()
    )


def _update(optimizer: Any, sample: Sample, kept: list[dict[str, Any]]) -> tuple[Any, Any]:
    """(size of the update, second moment) of each element; None for what is not known."""
    torch = sys.modules["torch"]
    moments = [[inventory.local(one.get(key)) for one in kept] for key in ("exp_avg", "exp_avg_sq", "momentum_buffer")]
    first, second, momentum = (
        torch.cat([pick(t) for t in one]).float() if all(t is not None for t in one) else None for one in moments
    )
    lr = _spread(sample, [row.lr() for row in sample.rows])
    if first is not None and second is not None and len(first) == len(second) == len(sample.before):
        return (lr * first).abs() / _denominator(sample.rows[0].group, kept[0], second), second
    if momentum is not None and len(momentum) == len(sample.before):
        return (lr * momentum).abs(), None
    if not any(kept) and type(optimizer).__name__ == "SGD":
        return (lr * sample.gradients.float()).abs(), None
    return None, None


def _spread(sample: Sample, values: list[float]) -> Any:
    torch = sys.modules["torch"]
    counts = torch.tensor(sample.counts, device=sample.before.device)
    return torch.tensor(values, device=sample.before.device).repeat_interleave(counts, output_size=len(sample.before))


def _denominator(group: dict[str, Any], kept: dict[str, Any], second: Any) -> Any:
    """(sqrt(v / (1 - b2^t)) + eps) * (1 - b1^t), with the step t where it is known without asking a device."""
    step, (beta1, beta2) = kept.get("step", 0), group.get("betas", (0.9, 0.999))
    if hasattr(step, "device"):
        step = float(step) if step.device.type == "cpu" else 10_000.0
    correct1, correct2 = 1 - float(beta1) ** max(step, 1), 1 - float(beta2) ** max(step, 1)
    return ((second / correct2).sqrt() + group.get("eps", 1e-8)) * correct1


def sums(seen: Seen, first: Any, felt: Any) -> Any:
    """Counts by parameter, in rows: felt at all looks, still, lost, moved by luck, flushed; and felt, size at this one.

    Args:
        seen: A step.
        first: The elements at the first look.
        felt: Which of them have had a gradient at each look, or often enough.
    """
    torch = sys.modules["torch"]
    stays = seen.after == seen.sample.before
    zeros = torch.zeros(len(stays), device=stays.device)
    lost = luck = size = zeros
    if seen.update is not None:
        size = seen.update / half_distance(seen.sample.before)
        lost, luck = seen.felt & stays & (size < 1), seen.felt & ~stays & (size < 2 * LUCK)
    flushed = seen.felt & (seen.second == 0) if seen.second is not None else zeros
    still = felt & (seen.after == first)
    size = torch.where(seen.felt, size.clamp(0, 100), 0)
    table = torch.stack([one.double() for one in (felt, still, lost, luck, flushed, seen.felt, size)]).cumsum(1)
    ends = torch.tensor(seen.sample.counts, device=table.device).cumsum(0) - 1
    return torch.diff(table[:, ends], dim=1, prepend=torch.zeros(7, 1, dtype=table.dtype, device=table.device))


def half_distance(values: Any) -> Any:
    """Half the distance to the next number, away from zero."""
    torch = sys.modules["torch"]
    limits = torch.finfo(values.dtype)
    exponent = torch.frexp(values.float()).exponent
    distance = torch.ldexp(torch.full_like(values, limits.eps, dtype=torch.float32), exponent - 1)
    return torch.where(values == 0, 0.0, distance).clamp(min=limits.smallest_normal * limits.eps) / 2
