"""Group what is equal across ranks, so that the one that differs stands out."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from diagd.daemon.ranks import rank_ranges
from diagd.daemon.state.model import Frame, Stack


class StackGroup(NamedTuple):
    """Ranks whose main threads are at the same place."""

    ranks: tuple[int, ...]
    frames: tuple[Frame, ...]  # innermost first

    def __str__(self) -> str:
        return f"{rank_ranges(self.ranks, named=True)}: {place(self.frames)}"


def group_stacks(stacks: Mapping[int, Stack]) -> list[StackGroup]:
    """Ranks by their main thread's frames, the largest group first; ranks without frames make one group, last."""
    groups: dict[tuple[Frame, ...], list[int]] = {}
    for rank, stack in sorted(stacks.items()):
        main = stack.main
        groups.setdefault(main.frames if main else (), []).append(rank)
    found = [StackGroup(tuple(ranks), frames) for frames, ranks in groups.items()]
    return sorted(found, key=lambda g: (not g.frames, -len(g.ranks), g.ranks))


def describe(groups: Sequence[StackGroup]) -> str:
    """All groups in one line."""
    return "; ".join(str(group) for group in groups)


def place(frames: Sequence[Frame]) -> str:
    """Where a stack is, for a person: the innermost call, and the user's line that led to it."""
    if not frames:
        return "no stack"
    inner = next((frame for frame in frames if not frame.ours), frames[0])
    user = next((frame for frame in frames if frame.user), None)
    if user is None:
        return f"{inner.function} {_location(inner)}"
    if user == inner:
        return f"{user.function} {_location(user)}"
    return f"{inner.function} ← {user.function} {_location(user)}"


def _location(frame: Frame) -> str:
    return f"{PurePath(frame.file).name}:{frame.line}"
