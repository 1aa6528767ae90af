"""Where a culprit is, in the user's own code."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from diagd.daemon.detectors.finding import Location
from diagd.daemon.detectors.position import Wait
from diagd.daemon.state.model import ASKS, CALL, Detail, Frame, Operation, Stack

MOST = 5  # locations a rank (report.schema.json)
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
LEFT_S = 2.0  # an operation that it was in so shortly before is near to where it ended
CLOCKS_S = 0.5  # apart, at most, are the rank's and its agent's


def at_wait(detail: Detail, wait: Wait | None) -> tuple[Location, ...]:
    """A rank inside an operation: the call's site first, then outward by its stack."""
    site = [wait.op.site] if wait is not None and wait.op.site is not None else []
    frames = () if site and wait is not None and _is_older(detail.stack, wait.op) else _user_frames(detail.stack)
    found = [*site, *frames]
    if not found and detail.backward_site is not None:  # C++ issued it, and no stack was to be had
        found = [detail.backward_site]
    return _locations(detail.rank, found)


def outside(detail: Detail, since_s: float = 0.0) -> tuple[Location, ...]:
    """A rank outside communication: its innermost user frame; a data worker's first, where it waits for its worker.

    Without a stack, where it called its last operation; not one from before `since_s`, which it has long left.
    """
    frames = list(_user_frames(detail.stack))
    if in_data_loader(detail):
        frames = [*(f for s in busy_workers(detail) for f in _user_frames(s)), *frames]
    last = detail.history[-1] if detail.history else None
    if not frames and last is not None and last.site is not None and (last.returned_s or last.entered_s) >= since_s:
        frames = [last.site]
    return _locations(detail.rank, frames)


def starting(rank: int, frame: Frame, rest: tuple[Location, ...]) -> tuple[Location, ...]:
    """This place first, then the others."""
    return _locations(rank, [frame, *(place.frame for place in rest)])


def after(rank: int, frame: Frame, rest: tuple[Location, ...]) -> tuple[Location, ...]:
    """The same for a place that the rank has gone on from, unless it is among the others."""
    found = starting(rank, frame, rest)
    if len(found) > 1 and found[0].frame not in [place.frame for place in rest]:
        return replace(found[0], left=True), *found[1:]
    return found


def merged(rank: int, found: tuple[Location, ...]) -> tuple[Location, ...]:
    """These places, each once."""
    return _locations(rank, [place.frame for place in found])


def in_step(detail: Detail, seen: tuple[Location, ...]) -> tuple[Location, ...]:
    """A rank that makes steps: where it calls backward, which one look can miss, then where it was seen."""
    return starting(detail.rank, detail.backward_site, seen) if detail.backward_site is not None else seen


class LastStep(NamedTuple):
    """Of a rank, the last step that it completed; for ever ahead where there is none."""

    began_s: float = math.inf
    ended_s: float = math.inf


NO_STEP = LastStep()


def at_end(detail: Detail, step: LastStep) -> tuple[Location, ...]:
    """A rank that ended: where its exception was raised or exit was called, else the last place it was seen at.

    That is a checkpoint that it began after its last step. It is no operation which it had long left, as the making of
    its group before all steps: there its last backward pass, if it had one, says more.
    """
    ending = detail.ending
    frames = [f for f in ending.frames if f.user] if ending is not None else []
    if frames or (seen := _user_frames(detail.stack)):
        return _locations(detail.rank, frames or seen)
    last = next((op for op in reversed((*detail.history, *detail.operations)) if op.site is not None), None)
    called_s = last.entered_s if last is not None else 0.0
    if detail.save_site is not None and detail.saving_s > max(step.ended_s, called_s):
        return _locations(detail.rank, [detail.save_site])
    end_s = detail.exit.at_s if detail.exit is not None else detail.in_shutdown_s
    recent_s = min(end_s - LEFT_S, step.began_s) if end_s is not None else -math.inf
    left = last is not None and end_s is not None and (last.returned_s or end_s) < recent_s
    site = last.site if last is not None and not left else detail.backward_site
    return _locations(detail.rank, [site] if site is not None else [])


def as_seen(detail: Detail) -> tuple[Location, ...]:
    """The frames of its exception or else of its stack; none from before."""
    raised = [f for f in detail.ending.frames if f.user] if detail.ending is not None else []
    return _locations(detail.rank, raised or _user_frames(detail.stack))


def in_data_loader(detail: Detail) -> bool:
    """Whether the main thread is under a data loader's iteration: torch's, or that of the script's own step loop."""
    main = detail.stack.main if detail.stack is not None else None
    own = detail.stack is not None and ASKS in detail.stack.note
    return own or (main is not None and any("/torch/utils/data/" in f.file for f in main.frames))


def busy_workers(detail: Detail) -> list[Stack]:
    """Stacks of the rank's workers that are inside the user's code, not waiting for an index."""
    return [s for s in detail.stacks if s.role not in ("rank", "sample", CALL) and any(_user_frames(s))]


def told(text: str) -> Frame | None:
    """A place as the probes put it into a fact, `file<tab>line<tab>function`; None for anything else."""
    parts = text.split("\t")
    if len(parts) != 3 or not parts[0] or not parts[1].isdigit():
        return None
    return Frame(parts[2], parts[0], int(parts[1]))


def first(locations: Iterable[Location], rank: int | None = None) -> Frame | None:
    """The first frame, of one rank or of any."""
    return next((place.frame for place in locations if rank is None or place.rank == rank), None)


def _is_older(stack: Stack | None, op: Operation) -> bool:
    """Whether the stack was taken before the rank came to the operation: it says who called another one then."""
    return stack is not None and 0.0 < stack.taken_s < op.entered_s - CLOCKS_S


def _user_frames(stack: Stack | None) -> tuple[Frame, ...]:
    main = stack.main if stack is not None else None
    return main.user_frames if main is not None else ()


def _locations(rank: int, frames: Iterable[Frame]) -> tuple[Location, ...]:
    found: dict[tuple[str, int], Frame] = {}
    for frame in frames:
        known = found.get(at := (frame.file, frame.line))
        if known is None or (known.function in _COMPREHENSIONS and frame.function not in _COMPREHENSIONS):
            found[at] = frame  # of a comprehension the function that it is in says more, and it is the next one outward
    return tuple(Location(rank, frame) for frame in list(found.values())[:MOST])
