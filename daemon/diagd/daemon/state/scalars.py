"""What an agent tells of a rank's scalars, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SignalNews:
    """What is new in one rank's signals; `names`, `steps` and `values` are one sample each.

    Strings are told once and then named by their number; a fact is a name, a step and a text.
    """

    rank: int
    pid: int
    first_string: int = 0
    strings: tuple[str, ...] = ()
    names: Sequence[int] = ()
    steps: Sequence[int] = ()
    values: Sequence[float] = ()
    facts: tuple[tuple[int, int, int], ...] = ()
    left_out: int = 0
