"""Replicas of which some train with their layers of running statistics in evaluation mode, and others do not."""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.replicas import SideBySide, replicas_of, side_by_side
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import JobState

SIGNAL = "mode/statistics"
LASTS = 3  # newest samples of a rank in one mode: an evaluation lies between two of them
NAMED = 4


def left_evaluating(scene: Scene) -> Iterator[Finding]:
    """One finding for each set of replicas."""
    for replicas in replicas_of(scene.state):
        seen = side_by_side(scene.state, replicas.ranks, SIGNAL, None)
        if seen is None or not len(seen.steps):
            continue
        if all(_lasts(scene.state, rank) for rank in replicas.ranks) and len(set(seen.values[:, -1])) > 1:
            yield _finding(scene.state, replicas.ranks, seen)


def _lasts(state: JobState, rank: int) -> bool:
    series = state.signals.series(rank, SIGNAL)
    return series is not None and len(series) >= LASTS and len(set(series.values[-LASTS:])) == 1


def _finding(state: JobState, ranks: tuple[int, ...], seen: SideBySide) -> Finding:
    now = dict(zip(ranks, seen.values[:, -1], strict=True))
    apart = np.flatnonzero(~(seen.values == seen.values[:1]).all(axis=0))
    since, before = int(seen.steps[apart[0]]), apart[0] > 0
    culprits = _odd(now, float(seen.values[0, apart[0] - 1]) if before else None)
    others = tuple(rank for rank in ranks if rank not in culprits)
    mode, layers = _mode(now[culprits[0]])
    other, _ = _mode(now[others[0]])
    verb = words.verb(culprits, "trains", "train")
    text = (
        f"{words.ranks_text(culprits)} {verb} with {layers} that keep running statistics in {mode} mode, while on"
        f" {words.ranks_text(others)} they are in {other} mode, {_when(seen, since, before)}. The run goes on, with"
        " ranks that normalise in different ways and keep other statistics"
    )
    said = "; ".join(f"{100 * share:.0f} % in training mode on rank {rank}" for rank, share in sorted(now.items()))
    why = "eval() was called there, and train() not since" if mode == "evaluation" else "train() was called there alone"
    cause = Cause("mode", why, 0.85, Basis.OBSERVATION, (Evidence(said, "probe", culprits[0], int(seen.steps[-1])),))
    return Finding(
        kind="divergence.buffer", severity=Severity.WARNING, ranks=culprits, summary=words.shortened(text),
        causes=(cause,), names=_names(state, ranks), step=since, sure=True, goes_on=True, key="mode",
    )  # fmt: skip


def _odd(now: dict[int, float], before: float | None) -> tuple[int, ...]:
    """Who has left the mode that all were in before; else the fewer ones, and of as many those that evaluate."""
    left = tuple(rank for rank, share in now.items() if share != before) if before is not None else ()
    if left and len(left) < len(now):
        return left
    classes: dict[float, list[int]] = {}
    for rank, share in now.items():
        classes.setdefault(share, []).append(rank)
    odd, tie = minority(sorted(classes.values(), key=lambda alike: (-len(alike), alike)))
    return tuple(classes[min(classes)]) if tie else odd


def _mode(share: float) -> tuple[str, str]:
    return ("training", "the layers") if share == 1.0 else ("evaluation", "some layers" if share else "the layers")


def _when(seen: SideBySide, since: int, before: bool) -> str:
    if not before:
        return "from the first steps on"
    equal = int(seen.steps[np.searchsorted(seen.steps, since) - 1])
    return f"since step {since}" if equal == since - 1 else f"since a step from {equal + 1} to {since}"


def _names(state: JobState, ranks: tuple[int, ...]) -> tuple[str, ...]:
    buffers = [e.name for e in state.tensors.entries if e.kind == "buffer" and set(e.infos) & set(ranks)]
    named = [name for name in buffers if name.rpartition(".")[2] in ("running_mean", "running_var")]
    return (*named[:NAMED], "eval", "train")
