"""Gradients that are never cleared, or too early."""

import re
from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.numerics.skipped import skips
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Curve, curve_of, figure
from diagd.daemon.detectors.training.saying import cause, finding, seen

KEPT = "gradients/kept"
LEAST = 10  # steps in a row, from the first that was seen on
MOST_LOST = 0.45  # of a step's passes: of two, one
TURNS, LONGEST = 6, 32  # times in a row that gradients are cleared after the same number of steps; at most so many
_GROUP = re.compile(r"lr/\d+/group")
AT_LIMIT, NEARLY_ALL, ADDED = 0.95, 0.9, 1.02  # of the limit of clipping, of the steps; and in the middle
GROWN = 1.5  # times the norm at first: gradients that only rest there are not what is applied


def kept_since(scene: Scene, rank: int, suffix: str = "") -> int | None:
    """The step since when the gradients of each step are still in the next one's; None where they are not.

    Args:
        suffix: Of the optimizer, in the names of its signals.
    """
    curve = curve_of(scene.state.signals.series(rank, KEPT + suffix))
    if len(curve.values) < LEAST or not (curve.values[-LEAST:] > 0).all():
        return None
    cleared = np.flatnonzero(curve.values == 0)
    return int(curve.steps[cleared[-1] + 1 if len(cleared) else 0])


def accumulation(scene: Scene) -> Iterator[Finding]:
    """Ranks that never clear the gradients of an optimizer."""
    since: dict[int, int] = {}
    grown: dict[int, str] = {}
    for rank in scene.state.signals.ranks(KEPT):
        optimizers = _optimizers(scene, rank)
        for suffix in optimizers:
            step = kept_since(scene, rank, suffix)
            growth = _growth(scene, rank, step, suffix) if step is not None else ""
            if step is not None and not growth and len(optimizers) == 1:  # of several, it is not known which is clipped
                growth = _bounded(scene, rank, step)
            if step is not None and growth:
                since[rank], grown[rank] = step, growth
    if not grown:
        return
    ranks = tuple(sorted(grown))
    step = min(since[r] for r in ranks)
    text = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'does', 'do')} not clear the gradients (zero_grad): since step"
        f" {step} each step adds its own to all earlier ones, and {grown[ranks[0]]}"
    )
    told = [seen("before each backward pass the gradients of the step before are still there, untouched", r, since[r])
            for r in ranks[:8]]  # fmt: skip
    why = cause("kept", "the gradients are not cleared between steps", 0.95, *told, basis=Basis.OBSERVATION)
    yield finding(
        "training.gradient_accumulation", Severity.WARNING, ranks, text, why, names=("grad", "zero_grad"), step=step
    )


def stepped_between(scene: Scene) -> Iterator[Finding]:
    """Ranks that step after each micro batch, and clear the gradients after each several.

    Of one optimizer only: what several share, or one leaves for another, rests between their steps in healthy runs.
    """
    signals = scene.state.signals
    every = {
        rank: found
        for rank in signals.ranks(KEPT)
        if not _several(scene, rank) and (found := _cleared_every(curve_of(signals.series(rank, KEPT))))
    }
    if not every:
        return
    ranks = tuple(sorted(every))
    period, step = every[ranks[0]]
    text = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'steps', 'step')} the optimizer {period} times for each time"
        f" that the gradients are cleared (zero_grad), since step {step}: all but the first step apply gradients again"
        " that earlier ones have applied"
    )
    told = [seen(f"the gradients of the step before were still there at {period - 1} of {period} steps,"
                 f" {TURNS} times in a row", r, step) for r in ranks[:8]]  # fmt: skip
    why = cause("between", "optimizer.step() is called for each micro batch, zero_grad() for each window of them", 0.85,
                *told, basis=Basis.OBSERVATION)  # fmt: skip
    names = ("zero_grad", "optimizer.step", "accumulation")
    yield finding("training.gradient_accumulation", Severity.WARNING, ranks, text, why, names=names, step=step,
                  key="between")  # fmt: skip


def _several(scene: Scene, rank: int) -> bool:
    """Whether the rank has more than one optimizer."""
    groups = (said for name, (_, said) in scene.state.signals.facts(rank).items() if _GROUP.fullmatch(name))
    return sum(said == "0" for said in groups) > 1  # each optimizer counts its own from 0


def _cleared_every(curve: Curve) -> tuple[int, int] | None:
    """After how many steps they are always cleared, of late, and since which step; None where not at even distances."""
    cleared = curve.steps[curve.values == 0]
    if len(cleared) <= TURNS or len(curve.steps) - np.searchsorted(curve.steps, cleared[-TURNS - 1]) < 2 * TURNS:
        return None
    apart = np.diff(cleared)
    period = int(apart[-1])
    if not 2 <= period <= LONGEST or not (apart[-TURNS:] == period).all():
        return None
    first = int(np.searchsorted(curve.steps, cleared[-TURNS - 1]))
    kept = int((curve.values[first:] > 0).sum())
    if kept < TURNS * (period - 1) / 2 or int(curve.steps[-1] - cleared[-1]) >= period:
        return None  # too few of the steps in between are known, or it has ended
    others = np.flatnonzero(apart != period)
    return period, int(cleared[others[-1] + 1 if len(others) else 0])


def discarded(scene: Scene) -> Iterator[Finding]:
    """Ranks that clear the gradients between the backward passes of one step."""
    signals = scene.state.signals
    curves = {r: curve_of(signals.series(r, "gradients/discarded")) for r in signals.ranks("gradients/discarded")}
    lost = {
        r: c
        for r, c in curves.items()
        if len(c.values) >= LEAST and (c.values[-LEAST:] >= MOST_LOST).all() and skips(scene, r) is None
    }
    if not lost:
        return
    ranks = tuple(sorted(lost))
    part = float(np.median(lost[ranks[0]].values[-LEAST:]))
    text = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'clears', 'clear')} the gradients (zero_grad) between the"
        f" backward passes of a step: {part:.0%} of the passes are for nothing, and the step uses those of the last"
    )
    told = [seen(f"{part:.0%} of the passes of a step have left gradients that were gone when the same line called"
                 " backward again, with no optimizer's step in between", r) for r in ranks[:8]]  # fmt: skip
    why = cause("discarded", "gradients are cleared between the micro batches of a step", 0.85, *told,
                basis=Basis.OBSERVATION)  # fmt: skip
    names = ("grad", "zero_grad", "accumulation")
    yield finding("training.gradient_accumulation", Severity.WARNING, ranks, text, why, names=names,
                  step=lost[ranks[0]].last_step, key="discarded")  # fmt: skip


def _optimizers(scene: Scene, rank: int) -> list[str]:
    names = scene.state.signals.names(rank)
    return sorted(name.removeprefix(KEPT) for name in names if name == KEPT or name.startswith(f"{KEPT}@"))


def _growth(scene: Scene, rank: int, since: int, suffix: str) -> str:
    """In words, from what to what the norm over all gradients has grown; empty where it has not."""
    curve = curve_of(scene.state.signals.series(rank, f"grad_norm{suffix}"))
    values = curve.values[curve.steps >= since - 1]
    if len(values) < LEAST // 2:
        return ""
    first, last = float(values[0]), float(np.median(values[-3:]))
    return f"their norm has gone from {figure(first)} to {figure(last)}" if last > GROWN * first else ""


def _bounded(scene: Scene, rank: int, since: int) -> str:
    """In words, that clipping alone bounds the norm: what it has left is at its limit, and more is added to that."""
    norms, limits = (curve_of(scene.state.signals.series(rank, name)) for name in ("clip_norm", "clip_norm/limit"))
    values = norms.values[norms.steps > since]
    if len(values) < LEAST or not len(limits.values) or limits.values[-1] <= 0:
        return ""
    limit, lately = float(limits.values[-1]), values[-LEAST:]
    if np.mean(lately >= AT_LIMIT * limit) < NEARLY_ALL or float(np.median(lately)) < ADDED * limit:
        return ""
    return f"clipping them to {figure(limit)} alone bounds their norm"
