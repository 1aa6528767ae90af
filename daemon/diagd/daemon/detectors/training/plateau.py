"""A loss that stands still: bit for bit while weights are updated, or within its own noise since the run began.

That a loss no longer falls says nothing: it may have converged, or its learning rate may have run out. What is spoken
of is a run that has never learned anything worth the name; and that only as worth knowing, until patience is at its
end: training on made-up data and fine-tuning look the same.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import SHORT, Curve, coarse, figure, lasting, noise, rolling_median
from diagd.daemon.detectors.training.falling import may_fall
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.detectors.training.unmoved import unmoved

SAME_FOR = 20  # samples
ABRUPT = 1e-3  # of the loss, or of a hundredth of the largest: what converges comes to rest by ever smaller changes
LEAST = 100  # samples from the beginning on
KNOWN = 40  # samples, where it is known why
LONG = 2000  # steps after which it is no longer patience that is asked for: until then made-up data looks the same
SKIPPED = 2  # the first may be far off: it is of untrained biases
AT_CHANCE = 0.03  # of the targets' entropy or variance: so near to it a loss stays that knows no more of them
LEARNED = 0.5  # of them
SMOOTHED = 9  # samples
GAIN = 0.15  # of the level at the beginning: less than that is a bias learned
MOST_NOISE = 0.5  # of the loss
SIGNS = 3.5  # standard errors that the fall from the second to the last third must exceed
STILL_WARM = 0.5  # of the highest learning rate: below it the schedule is over or has not begun

ABOVE = 0.12  # of it, where the loss no longer falls
LEVELS = {
    "loss/target_entropy": ("entropy", "how often there is each class"),
    "loss/target_variance": ("variance", "the targets' mean"),
}


def plateaus(scene: Scene) -> Iterator[Finding]:
    """The loss of all ranks stands still."""
    run = Run(scene)
    losses = run.losses()
    if not losses or run.casts_are_stale:
        return
    exact = {rank: _unrounded(run, rank, curve) for rank, curve in losses.items()}
    same = [rank for rank, curve in exact.items() if is_constant(curve) and run.is_updated(rank, since(curve))]
    if len(same) == len(exact):
        yield _constant(run, exact, tuple(same))
        return
    if (found := unmoved(run, losses)) is not None:
        yield found
        return
    if run.reinforced or run.adversarial or not _is_trained(run, next(iter(losses))):
        return
    shapes = run.fact("loss/broadcast")
    if all(is_flat(curve, KNOWN if shapes else LEAST) and not _knows(run, r, curve) for r, curve in losses.items()):
        yield _flat(run, losses, shapes)
        return
    for signal in LEVELS:
        if all(is_at_chance(curve, _told(run, rank, signal)) for rank, curve in losses.items()):
            yield _at_chance(run, losses, signal)
            return


def _unrounded(run: Run, rank: int, curve: Curve) -> Curve:
    """What its backward was called on, where the script logs more samples of its loss, but rounded."""
    told = run.curve(rank, "loss") if coarse(curve.values) else curve
    return told if len(told.steps) else curve


def since(curve: Curve) -> int:
    """The step from which the newest samples are the same."""
    return int(curve.steps[-lasting(curve.values == curve.values[-1])])


def is_constant(curve: Curve) -> bool:
    """Whether the newest samples are equal bit for bit, which a loss of low precision may well be for a while."""
    if not len(curve.values) or curve.values[-1] == 0:
        return False  # fully fitted, or cancelled: see the gradients
    if coarse(curve.values):
        return False  # values that are not equal are written alike
    bits = int(np.float64(curve.values[-1]).view(np.int64))
    count = lasting(curve.values == curve.values[-1])
    if count < (3 if bits % SHORT == 0 else 1) * SAME_FOR:
        return False
    before = curve.values[: len(curve.values) - count]
    size = max(abs(float(curve.values[-1])), 0.01 * float(np.abs(curve.values).max()))
    return len(before) <= SKIPPED or abs(float(before[-1] - curve.values[-1])) > ABRUPT * size


def is_flat(curve: Curve, least: int = LEAST) -> bool:
    """Whether the loss has stayed within its noise since the beginning, but for what biases bring."""
    values = curve.values[SKIPPED:]
    if len(values) < least:
        return False
    if noise(values) > MOST_NOISE * abs(float(np.median(values))):
        return False  # it may rise or fall by a lot, and none would see it
    third = len(values) // 3
    early, middle, late = values[:third], values[third : 2 * third], values[-third:]
    deviation = max(noise(values), 1e-3 * abs(float(np.median(values))))
    error = deviation * (2.0 / third) ** 0.5
    moves = (
        abs(float(middle.mean() - late.mean())) > SIGNS * error
        or abs(float(early.mean() - late.mean())) > 2 * SIGNS * error
    )
    begin, end = float(np.median(values[:5])), float(np.median(late))
    if moves or abs(begin - end) >= max(GAIN * abs(begin), 2 * deviation):
        return False
    return not may_fall(values, patient=least >= LEAST)


def _told(run: Run, rank: int, signal: str) -> float:
    """What the loss of this rank is at that knows nothing but its targets; 0 where that is not known."""
    told = run.curve(rank, signal)
    return float(told.values[-1]) if len(told.values) else 0.0


def _knows(run: Run, rank: int, curve: Curve) -> bool:
    """Whether the loss is far below what knowing the targets alone gives: as in a run that was resumed."""
    level = max(_told(run, rank, signal) for signal in LEVELS)
    return float(np.median(curve.values)) < LEARNED * level


def is_at_chance(curve: Curve, level: float) -> bool:
    """Whether the loss has come down to what knowing the targets alone gives, and never below."""
    values = curve.values[SKIPPED:]
    if len(values) < LEAST or level <= 0.0:
        return False
    end = float(np.median(values[-len(values) // 6 :]))
    if rolling_median(values, SMOOTHED).min() < (1 - GAIN) * level:
        return False  # it was learned, and lost again
    third = len(values) // 3
    middle, late = float(np.median(values[third : 2 * third])), float(np.median(values[-third:]))
    settled = middle - late < AT_CHANCE * level  # what such a model adds of its own keeps it above that level
    return (1 - AT_CHANCE / 2) * level < end < (1 + (ABOVE if settled else AT_CHANCE)) * level


def _is_trained(run: Run, rank: int) -> bool:
    """Whether steps of a usual size are made: neither in a warm-up nor after the schedule's end."""
    rates = run.rates(rank)
    if not rates:
        return run.is_updated(rank, 0)
    middle = [float(np.median(curve.values) / max(curve.values.max(), 1e-30)) for curve in rates]
    return max(middle) >= STILL_WARM and run.is_updated(rank, 0)


def _constant(run: Run, losses: dict[int, Curve], ranks: tuple[int, ...]) -> Finding:
    curve = losses[ranks[0]]
    first, count = since(curve), lasting(curve.values == curve.values[-1])
    text = (
        f"the loss is exactly {float(curve.values[-1]):.7g} at {count} steps in a row, since step {first}, though"
        " weights are updated: what the model computes does not depend on them"
    )
    gradient = run.gradient(ranks[0])
    norm = figure(float(gradient.values[-1]))
    evidence = seen(f"{count} losses equal in all bits; gradient norm {norm}", ranks[0], first)
    why = cause("constant", "the forward pass reads other weights than those that the optimizer changes", 0.85,
                evidence, basis=Basis.OBSERVATION)  # fmt: skip
    return finding("training.loss_plateau", Severity.WARNING, ranks, text, why, names=("loss",), step=curve.last_step,
                   key="constant")  # fmt: skip


def _flat(run: Run, losses: dict[int, Curve], shapes: str) -> Finding:
    ranks = tuple(losses)
    curve = losses[ranks[0]]
    values = curve.values[SKIPPED:]
    level, deviation = float(np.median(values)), noise(values)
    text = (
        f"the loss of {words.ranks_text(ranks)} has not fallen beyond its noise in {len(values)} samples: it stays at"
        f" {figure(level)} ± {figure(deviation)}, while weights are updated"
    )
    evidence = seen(f"begins at {figure(curve.begin())}, last third {figure(float(values[-len(values) // 3:].mean()))}",
                    ranks[0])  # fmt: skip
    if shapes:
        return _broadcast(ranks, text, shapes, evidence, curve.last_step)
    why = cause("nothing learned", "what is trained gains nothing from the inputs: targets that do not belong to them"
                " (shuffled, of another shape), or inputs that do not reach the loss", 0.55, evidence)  # fmt: skip
    from_nothing = not run.partly_frozen and not run.is_loaded
    is_long = int(curve.steps[-1] - curve.steps[0]) >= LONG
    severity = Severity.WARNING if from_nothing and is_long else Severity.INFO
    return finding("training.loss_plateau", severity, ranks, text, why, names=("loss",), step=curve.last_step)


def _at_chance(run: Run, losses: dict[int, Curve], signal: str) -> Finding:
    ranks = tuple(losses)
    curve, known = losses[ranks[0]], _told(run, ranks[0], signal)
    level = float(np.median(np.array_split(curve.values, 3)[-1]))
    what, no_more = LEVELS[signal]
    text = (
        f"the loss of {words.ranks_text(ranks)} has stayed at {figure(level)} to step {curve.last_step}: the {what} of"
        f" its targets is {figure(known)}, so that no more was learned than {no_more}"
    )
    evidence = seen(f"loss {figure(level)} in the last third, {what} of the targets {figure(known)}", ranks[0])
    why = cause("inputs unused", "the inputs do not reach what is predicted (a mask the wrong way round, a part that is"
                " detached or replaced), or targets do not belong to them (shuffled apart)", 0.6, evidence)  # fmt: skip
    is_long = int(curve.steps[-1] - curve.steps[0]) >= LONG and not run.is_loaded
    return finding("training.loss_plateau", Severity.WARNING if is_long else Severity.INFO, ranks, text, why,
                   names=("loss", "targets"), step=curve.last_step)  # fmt: skip


def _broadcast(ranks: tuple[int, ...], text: str, shapes: str, evidence: Evidence, step: int) -> Finding:
    given, made = (f"[{shape.replace(',', ', ')}]" for shape in shapes.split())
    text += f". In the loss, predictions of shape {given} and targets are broadcast to {made}"
    graph = seen(f"shapes in the loss's graph: {given}, then {made}", source="probe")
    why = cause("broadcast", "each prediction is compared with the targets of all samples, so that their mean is the"
                " best answer", 0.9, evidence, graph, basis=Basis.OBSERVATION)  # fmt: skip
    return finding("training.loss_plateau", Severity.WARNING, ranks, text, why, names=("loss", "shape"), step=step)
