"""What an optimizer's `state_dict` keeps by the numbers of its parameters, beside what a job keeps by their names."""

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

_NUMBERED = re.compile(r"(.*\.)?state\.(\d+)\.(\w+)")


class Named(Protocol):
    """A tensor of a ledger."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


Found = TypeVar("Found", bound=Named)


def is_numbered(tensor: Named) -> bool:
    """Whether a checkpoint holds it as state of a parameter without a name."""
    return tensor.kind == "file" and _NUMBERED.fullmatch(tensor.name) is not None


def by_numbers(live: Sequence[Found], file: Sequence[Found], states: Sequence[Found]) -> list[tuple[Found, Found]]:
    """Pairs of a job's states and a file's; none unless all numbers fit, in the parameters' order and by their shapes.

    Args:
        live: All that the job's ledger holds, in its order: an optimizer that was made of model.parameters() has that.
        file: What is left of the checkpoint.
        states: What is left of the job's states.
    """
    told = {(m[1] or "", int(m[2]), m[3]): t for t in file if (m := _NUMBERED.fullmatch(t.name))}
    of_state = {state.name: state for state in states if state.kind == "state"}
    stepped = {name.rpartition(".")[0] for name in of_state}
    owners = [one.name for one in live if one.kind == "parameter" and one.name in stepped]
    numbers = sorted({number for _, number, _ in told})
    if len({prefix for prefix, _, _ in told}) != 1 or len(numbers) != len(owners):
        return []
    named = dict(zip(numbers, owners, strict=True))
    pairs = [
        (state, tensor)
        for (_, number, field), tensor in told.items()
        if (state := of_state.get(f"{named[number]}.{field}")) is not None
    ]
    return pairs if all(state.shape == tensor.shape for state, tensor in pairs) else []
