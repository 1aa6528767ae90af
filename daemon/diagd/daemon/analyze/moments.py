"""After which step of a training a ledger is judged, and how steps are written."""

from collections.abc import Iterable
from dataclasses import replace

from diagd.daemon.analyze.ledger_tensors import ByStep, Tensor
from diagd.daemon.analyze.pairing import Pair

_LISTED = 3  # steps; of more, how many they are


def of_moment(side: list[Tensor], step: int | None, where: str) -> list[Tensor]:
    """The tensors of a ledger as they were after one step: the one named, else the one that it was saved for.

    What checkpoints hold is of one step that they do not tell, and what was only sampled is of many: unless a step is
    named, both stay as they are.
    """
    at = step if step is not None else next((one.step for one in side if one.step is not None), None)
    return side if at is None else [one if one.of_file else _at(one, at, where) for one in side]


def _at(tensor: Tensor, step: int, where: str) -> Tensor:
    sums: ByStep = {step: tensor.sums[step]} if step in tensor.sums else {}
    digests: ByStep = {step: tensor.digests[step]} if step in tensor.digests else {}
    elsewhen = {other: held for other, held in tensor.digests.items() if other != step}
    why = tensor.why
    if not sums and not digests:
        but = f", but {sampled_after({*elsewhen, *tensor.sums})}" if elsewhen or tensor.sums else ""
        why = why or f"{where} does not tell what it held {after(step)}{but}"
    return replace(
        tensor, sums=sums, digests=digests, elsewhen=elsewhen, parts=tensor.parts if sums else {}, why=why
    )  # fmt: skip


def shared_steps(pairs: Iterable[Pair], names: set[str]) -> list[int]:
    """After which steps both hold digests of all those named: a person may choose one of these."""
    held = [
        {*one.digests, *one.elsewhen} & {*other.digests, *other.elsewhen} for one, other in pairs if one.name in names
    ]
    return sorted(step for step in set.intersection(*held) if step is not None) if held else []


def after(step: int) -> str:
    """When a tensor held what is told of it."""
    return f"after step {step}" if step else "before the first step"


def sampled_after(steps: Iterable[int | None]) -> str:
    """`after steps 0, 1`, `after 11 steps from 0 to 400`: the same words for tensors with other steps between."""
    told = sorted(step for step in steps if step is not None)
    if len(told) > _LISTED:
        return f"after {len(told)} steps from {told[0]} to {told[-1]}"
    return after(told[0]) if len(told) == 1 else f"after steps {', '.join(map(str, told))}"
