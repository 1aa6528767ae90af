"""What a checkpoint holds and the run did not take: tensors under other names, moments, the schedule's position."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.restored import came_back, restored
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, figure
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.whose_moments import whose_moments

LOADS = 8  # the newest ones
LEAST, LATEST, FIRST, AFTER = 24, 16, 3, 24  # samples of the loss before, of these the last; samples, steps after it
LEARNT, BACK = 0.5, 0.6  # of what the loss was at first; of what had been gained
_PARTS = {"names": 4, "optimizer": 2, "schedule": 2, "moved": 3, "itself": 5}  # of each fact
_SURE = 0.9  # seen in the rank itself; that it was not meant so is left open


def checkpoint(scene: Scene) -> Iterator[Finding]:
    """One finding for each thing that was left in the file, for all ranks that left it there."""
    for name, tell in _TOLD.items():
        facts = {rank: fact for rank in scene.state.ranks() if (fact := _fact(scene, rank, name)) is not None}
        if facts:
            ranks = tuple(sorted(facts))
            step, text = facts[ranks[0]]
            yield tell(ranks, step, text.split("|"))
    yield from whose_moments(scene)
    fell = tuple(fallen_back(scene))
    yield from fell if any(found.severity > Severity.INFO for found in fell) else tuple(restored(scene)) or fell


def fallen_back(scene: Scene) -> Iterator[Finding]:
    """Weights that were loaded in the middle of the run, and with which the loss is as it was at the beginning.

    Worth knowing, and no more: a script may mean to begin anew, as for another fold. Not with names that do not match.
    """
    run = Run(scene)
    if run.reinforced or run.adversarial:
        return
    fell = {rank: fall for rank, curve in run.losses().items() if (fall := _fall(scene, rank, curve)) is not None}
    if not fell:
        return
    ranks = tuple(sorted(fell))
    step, before, after, begin = fell[ranks[0]]
    strays = _strays(scene, ranks[0], step)
    text = (
        f"with the weights that {words.ranks_text(ranks)} {words.verb(ranks, 'has', 'have')} loaded before step {step}"
        f" the loss is as it was at first ({figure(begin)}): {figure(after)}, after {figure(before)}"
    )
    seen = f"loss {figure(before)} before load_state_dict, {figure(after)} in the steps after it"
    if strays:
        left, unknown = strays
        text += f"; it left {left[0]} and others as they were, and held {unknown[0]}, which fits no tensor of the model"
        yield _finding("strays", ranks, step, text, seen, (*left, *unknown, "loss", "load_state_dict"))
    else:
        yield _finding("fallen", ranks, step, text, seen, ("loss", "load_state_dict"), Severity.INFO)


def _strays(scene: Scene, rank: int, step: int) -> tuple[list[str], list[str]] | None:
    """Tensors that this load left as they were, and names in it that fitted none; None where there are not both."""
    fact = scene.state.signals.fact(rank, "checkpoint/strays")
    if fact is None or fact[0] != step or fact[1].count("|") != 1:
        return None
    left, unknown = (part.split(",") for part in fact[1].split("|"))
    return left, unknown


def _fall(scene: Scene, rank: int, curve: Curve) -> tuple[int, float, float, float] | None:
    """The step, and the loss before it, after it and at the beginning; None where it has not fallen back."""
    took = scene.state.signals.series(rank, "checkpoint/took")
    for step in took.steps[-LOADS:].tolist() if took is not None else ():
        earlier = curve.values[curve.steps < step]
        after = curve.values[(curve.steps >= step) & (curve.steps < step + AFTER)][:FIRST]
        if len(earlier) < LEAST or len(after) < FIRST:
            continue
        begin, before, now = curve.begin(), float(np.median(earlier[-LATEST:])), float(np.median(after))
        if 0 < before < LEARNT * begin and now - before > BACK * (begin - before) and not came_back(scene, rank, step):
            return step, before, now, begin
    return None


def _fact(scene: Scene, rank: int, name: str) -> tuple[int, str] | None:
    fact = scene.state.signals.fact(rank, f"checkpoint/{name}")
    return fact if fact is not None and fact[1].count("|") == _PARTS[name] - 1 else None


def _names(ranks: tuple[int, ...], step: int, told: list[str]) -> Finding:
    count, prefix, where, names = told
    have, lack = ("checkpoint's", "model's") if where == "file" else ("model's", "checkpoint's")
    text = (
        f"{words.ranks_text(ranks)} loaded a checkpoint that left {count} tensors of the model as they were:"
        f" the {have} names begin with '{prefix}', the {lack} do not"
    )
    seen = f"load_state_dict(strict=False) found them missing, and the same ones with '{prefix}' unexpected: {names}"
    return _finding("names", ranks, step, text, seen, tuple(names.split(",")))


def _optimizer(ranks: tuple[int, ...], step: int, told: list[str]) -> Finding:
    file, count = told
    text = (
        f"{words.ranks_text(ranks)} resumed from {file} with the weights alone: the optimizer's state of {count}"
        " parameters that it holds was not loaded, so moments begin at zero"
    )
    seen = f"this run goes on from {file}, and no optimizer's load_state_dict was called before step {step}"
    return _finding("optimizer", ranks, step, text, seen, ("optimizer state",))


def _schedule(ranks: tuple[int, ...], step: int, told: list[str]) -> Finding:
    file, position = told
    text = (
        f"{words.ranks_text(ranks)} resumed from {file}, whose learning-rate schedule stands at {position}, and began"
        " the schedule anew"
    )
    seen = f"no scheduler's load_state_dict was called before step {step}, and none stands at {position} or behind it"
    return _finding("schedule", ranks, step, text, seen, ("lr", "scheduler"))


def _moved(ranks: tuple[int, ...], step: int, told: list[str]) -> Finding:
    count, what, pairs = told
    names = [tuple(pair.partition("<")[::2]) for pair in pairs.split(",")]
    own, other = names[0]
    text = (
        f"{words.ranks_text(ranks)} resumed with the optimizer's state of {count} parameters at others' places:"
        f" {what} of {own} is what that of {other} was when this run wrote the file"
    )
    seen = "by their values, before the first step: " + ", ".join(f"{one} has {what} of {kept}" for one, kept in names)
    return _finding("moved", ranks, step, text, seen, (*(one for one, _ in names), what, "optimizer state"))


def _itself(ranks: tuple[int, ...], step: int, told: list[str]) -> Finding:
    model, taken, count, names, line = told
    moved = f"have moved on with it since step {taken}, before which it was taken"
    if taken == "0":
        moved = "hold the other weights that were loaded since it was taken"
    text = (
        f"{words.ranks_text(ranks)} loaded a state_dict of {model} before step {step} that gave nothing back: its"
        f" tensors are the model's own, and {moved}"
    )
    seen = f"all {count} trained parameters that it holds lie where the model's own do"
    frame = places.told(line)
    found = _finding("itself", ranks, step, text, seen, (*names.split(","), "state_dict", "load_state_dict"))
    return replace(found, locations=tuple(Location(rank, frame) for rank in ranks) if frame is not None else ())


def _finding(
    key: str, ranks: tuple[int, ...], step: int, text: str, seen: str, names: tuple[str, ...],
    severity: Severity = Severity.WARNING,
) -> Finding:  # fmt: skip
    why = {
        "names": "the model was saved inside a wrapper and is loaded without it, or the other way round",
        "optimizer": "the script loads the model and not the optimizer",
        "schedule": "the script loads the model and not the scheduler",
        "moved": "an optimizer's state is kept by position, and its parameters or groups are in another order now",
        "itself": "state_dict() hands out references to the live weights, and what was kept of it is no copy",
        "strays": "names in the checkpoint and in the model do not match, and strict=False passes over that",
        "fallen": "what was loaded has the right names and shapes, and is not what was trained: tensors in another"
        " order, of another model or of another time",
    }[key]
    cause = Cause(
        key,
        why,
        _SURE if severity is Severity.WARNING else 0.6,
        Basis.OBSERVATION,
        (Evidence(seen, "probe", ranks[0], step),),
    )
    return Finding(
        "divergence.checkpoint", severity, ranks, words.shortened(text), (cause,), names=names, step=step,
        sure=True, goes_on=True, key=key,
    )  # fmt: skip


_TOLD = {"names": _names, "optimizer": _optimizer, "schedule": _schedule, "moved": _moved, "itself": _itself}
