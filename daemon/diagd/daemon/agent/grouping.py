"""Group what is equal across processes, so that the one that differs stands out."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from diagd.daemon.state.model import Frame, Stack


class StackGroup(NamedTuple):
    """Processes whose main threads are at the same place."""

    members: tuple[int, ...]
    frames: tuple[Frame, ...]  # innermost first


def group_stacks(stacks: Mapping[int, Stack]) -> list[StackGroup]:
    """Processes by their main thread's frames, the largest group first, that without frames last."""
    groups: dict[tuple[Frame, ...], list[int]] = {}
    for number, stack in sorted(stacks.items()):
        main = stack.main
        groups.setdefault(main.frames if main else (), []).append(number)
    found = [StackGroup(tuple(members), frames) for frames, members in groups.items()]
    return sorted(found, key=lambda g: (not g.frames, -len(g.members), g.members))


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
