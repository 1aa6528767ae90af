"""A file of the run's own that was read back, with which the loss is not what it was when the file was written."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, Floats, figure, spread
from diagd.daemon.detectors.training.run import Run

LOADS = 8  # the newest ones
LEAST, LATEST, FIRST, AFTER = 8, 16, 3, 24  # samples before the file was written, the most; samples, steps after it
SIGMAS, LOST, TIMES = 6.0, 0.2, 1.3  # over the noise; of what had been gained since the run began; of the loss itself
SURE = 3.0  # sigmas, where it is known anyway that weights are not what they were
MEDIAN = 1.25  # a median scatters so much more than a mean, sqrt(pi / 2)


def restored(scene: Scene) -> Iterator[Finding]:
    """One finding, where weights and an optimizer's state came back and the loss did not.

    A run that goes on from its own file, moments included, means to go on as it was. One that takes the weights alone
    may go on with other data: of that nothing is said, unless some of its parameters came back and others did not.
    """
    run = Run(scene)
    if run.reinforced or run.adversarial:
        return
    fell = {rank: fall for rank, curve in run.losses().items() if (fall := _fall(scene, rank, curve)) is not None}
    if fell:
        yield _finding(fell, _changed(scene, min(fall.step for fall in fell.values())))


class _Fall(NamedTuple):
    step: int  # before which the file was read
    written: int  # before which it was written
    was: float  # the loss then
    now: float


def _fall(scene: Scene, rank: int, curve: Curve) -> _Fall | None:
    """The newest one of a rank's; None where the loss came back as it was."""
    reread = scene.state.signals.series(rank, "checkpoint/reread")
    given = scene.state.signals.series(rank, "checkpoint/restored")
    loads = zip(reread.steps.tolist(), reread.values.tolist(), strict=True) if reread is not None else ()
    for step, written in sorted(set(loads))[-LOADS:]:
        before = curve.values[(curve.steps < written) & (curve.steps >= written - LATEST)]
        after = curve.values[(curve.steps >= step) & (curve.steps < step + AFTER)]
        if len(before) < LEAST or len(after) < FIRST:
            continue
        fall = _Fall(step, int(written), float(np.median(before)), float(np.median(after[:FIRST])))
        resumes = given is not None and step in given.steps and not came_back(scene, rank, step)
        lost = curve.begin() - fall.was
        if (resumes and _is_far(before, after[:FIRST], lost)) or (
            _in_part(scene, step) and _is_up(before, after, lost)
        ):
            return fall
    return None


def came_back(scene: Scene, rank: int, step: int) -> bool:
    """Whether weights and moments are known to be what they were: then the data has changed, or the task."""
    kept, given = (scene.state.signals.fact(rank, f"checkpoint/{what}") for what in ("kept", "given"))
    if kept is None or given is None or given[0] != step or kept[0] > step:
        return False
    before, now = (dict(pair.rpartition("=")[::2] for pair in fact[1].split(",")) for fact in (kept, given))
    both = before.keys() & now.keys() - {""}
    return bool(both) and all(before[name] == now[name] for name in both)


def _is_far(before: Floats, after: Floats, gained: float) -> bool:
    """Whether each of the first losses is out of the noise, and much of what had been gained is gone."""
    was, noise = float(np.median(before)), SIGMAS * spread(before)
    least = max(was + noise, was + LOST * gained, TIMES * was)
    return gained > 0 and min(after) > was + noise and float(np.median(after)) > least


def _is_up(before: Floats, after: Floats, gained: float) -> bool:
    """Whether the level of the losses is higher, for parameters that are known to be others than they were."""
    if len(after) < LEAST:
        return False
    now, was = float(np.median(after[:LEAST])), float(np.median(before))
    doubt = MEDIAN * spread(before) * math.sqrt(1 / len(before) + 1 / LEAST)  # of a difference of two medians
    return gained > 0 and now > was + max(SURE * doubt, LOST * gained)


def _in_part(scene: Scene, step: int) -> bool:
    """Whether some parameters came back as they were, and some did not."""
    found = _changed(scene, step)
    numbers = found[0].split(" of ") if found is not None else []
    return len(numbers) == 2 and 0 < int(numbers[0]) < int(numbers[1])


def _changed(scene: Scene, step: int) -> tuple[str, list[tuple[str, str]]] | None:
    """Of which parameters it is known that they came back otherwise, and what they hold now; from any rank."""
    for rank in scene.state.ranks():
        fact = scene.state.signals.fact(rank, "checkpoint/changed")
        if fact is not None and fact[0] == step and fact[1].count("|") == 1:
            count, _, pairs = fact[1].partition("|")
            parts = (pair.partition("<") for pair in pairs.split(","))
            return count, [(name, other) for name, _, other in parts]
    return None


def _finding(fell: dict[int, _Fall], changed: tuple[str, list[tuple[str, str]]] | None) -> Finding:
    ranks = tuple(sorted(fell))
    step, written, was, now = fell[ranks[0]]
    text = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'has', 'have')} gone back before step {step} to a file that this"
        f" run wrote before step {written}, and the loss is not what it was then: {figure(now)}, after {figure(was)}"
    )
    names: tuple[str, ...] = ("loss", "load_state_dict")
    if changed is not None:
        names = (*(name for name, _ in changed[1]), *names)
        name, other = changed[1][0]
        text += f"; {changed[0]} parameters did not come back as they were: {name}"
        text += f" holds what {other} held" if other else ""
    told = tuple(
        Evidence(
            f"loss {figure(one.was)} up to step {one.written - 1}, {figure(one.now)} from step {one.step} on",
            "signals",
            r,
        )
        for r, one in sorted(fell.items())[:8]
    )
    read = Evidence("a file of this run's own was read", "probe", ranks[0], step)
    cause = Cause(
        "restored", "the tensors are not where they were when it was written: another rank's file, files in another"
        " order, names that do not match, or a part that is not in it", 0.75, Basis.INFERENCE, (read, *told),
    )  # fmt: skip
    return Finding(
        "divergence.checkpoint", Severity.WARNING, ranks, words.shortened(text), (cause,),
        names=names, step=step, sure=True, goes_on=True, key="restored",
    )  # fmt: skip
