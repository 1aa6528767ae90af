"""A file of the run's own that was read back, with which the loss is not what it was when the file was written."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, figure, spread
from diagd.daemon.detectors.training.run import Run

LOADS = 8  # the newest ones
LEAST, LATEST, FIRST, AFTER = 8, 16, 3, 24  # samples before the file was written, the most; samples, steps after it
SIGMAS, LOST, TIMES = 6.0, 0.2, 1.3  # over the noise; of what had been gained since the run began; of the loss itself


def restored(scene: Scene) -> Iterator[Finding]:
    """One finding, where weights and an optimizer's state came back and the loss did not.

    A run that goes on from its own file, moments included, means to go on as it was. One that takes the weights alone
    may go on with other data: of that nothing is said here.
    """
    run = Run(scene)
    if run.reinforced or run.adversarial:
        return
    fell = {rank: fall for rank, curve in run.losses().items() if (fall := _fall(scene, rank, curve)) is not None}
    if fell:
        yield _finding(fell, _changed(scene, min(step for step, *_ in fell.values())))


def _fall(scene: Scene, rank: int, curve: Curve) -> tuple[int, int, float, float] | None:
    """The steps of reading and of writing, and the loss at both; None where it came back as it was."""
    reread = scene.state.signals.series(rank, "checkpoint/reread")
    given = scene.state.signals.series(rank, "checkpoint/restored")
    if reread is None or given is None:
        return None
    for step, written in list(zip(reread.steps.tolist(), reread.values.tolist(), strict=True))[-LOADS:]:
        before = curve.values[(curve.steps < written) & (curve.steps >= written - LATEST)]
        after = curve.values[(curve.steps >= step) & (curve.steps < step + AFTER)][:FIRST]
        if step not in given.steps or len(before) < LEAST or len(after) < FIRST:
            continue
        was, now, gained = float(np.median(before)), float(np.median(after)), curve.begin() - float(np.median(before))
        least = max(was + SIGMAS * spread(before), was + LOST * gained, TIMES * was)
        if gained > 0 and min(after) > was + SIGMAS * spread(before) and now > least:
            return step, int(written), was, now
    return None


def _changed(scene: Scene, step: int) -> tuple[str, list[tuple[str, str]]] | None:
    """Of which parameters it is known that they came back otherwise, and what they hold now; from any rank."""
    for rank in scene.state.ranks():
        fact = scene.state.signals.fact(rank, "checkpoint/changed")
        if fact is not None and fact[0] == step and fact[1].count("|") == 1:
            count, _, pairs = fact[1].partition("|")
            parts = (pair.partition("<") for pair in pairs.split(","))
            return count, [(name, other) for name, _, other in parts]
    return None


def _finding(
    fell: dict[int, tuple[int, int, float, float]], changed: tuple[str, list[tuple[str, str]]] | None
) -> Finding:
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
        Evidence(f"loss {figure(one[2])} up to step {one[1] - 1}, {figure(one[3])} from step {one[0]} on", "signals", r)
        for r, one in sorted(fell.items())[:8]
    )
    read = Evidence("a file of this run's own was read, and an optimizer was given its state", "probe", ranks[0], step)
    cause = Cause(
        "restored", "the tensors are not where they were when it was written: another rank's file, files in another"
        " order, names that do not match, or a part that is not in it", 0.75, Basis.INFERENCE, (read, *told),
    )  # fmt: skip
    return Finding(
        "divergence.checkpoint", Severity.WARNING, ranks, words.shortened(text), (cause,),
        names=names, step=step, sure=True, goes_on=True, key="restored",
    )  # fmt: skip
