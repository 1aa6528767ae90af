"""Gradient scalers of replicas that have skipped other steps: each has looked at its own gradients alone.

Scalers see the same where gradients are reduced before they are looked at, as under DDP, or where they tell each other
(ShardedGradScaler). A step that one rank leaves out is one that its optimizer has not counted and its weights have not
made.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import Floats
from diagd.daemon.state.job import JobState

LASTS = 8  # updates for which the counts have differed: what comes later from one rank makes no difference


def skipped_alone(scene: Scene) -> Iterator[Finding]:
    """One finding for the ranks that have skipped another number of steps than most."""
    ranks = scene.state.signals.ranks("scaler/skipped")
    counts = {rank: _counted(scene.state, rank) for rank in ranks}
    updates = min((len(count) for count in counts.values()), default=0)
    if len(ranks) < 2 or updates <= LASTS or not _are_replicas(scene.state, ranks):
        return
    table = np.stack([counts[rank][:updates] for rank in ranks])
    unequal = (table != table[0]).any(axis=0)
    if not unequal[-LASTS:].all():
        return
    equal = np.flatnonzero(~unequal)
    yield _finding(scene, ranks, table, int(equal[-1]) + 1 if len(equal) else 0)


def _counted(state: JobState, rank: int) -> Floats:
    """The steps skipped so far, update by update; empty where some updates are not known."""
    series = state.signals.series(rank, "scaler/skipped")
    if series is None or (len(series) and np.diff(series.steps).max(initial=0) > 1):
        return np.zeros(0)
    return series.values.cumsum()


def _are_replicas(state: JobState, ranks: tuple[int, ...]) -> bool:
    """Whether parameters that are trained were seen to be equal on all of them."""
    return any(
        entry.kind == "parameter" and set(ranks) <= set(entry.infos) and entry.agreement.last_equal > 0
        and all(info.owned and not info.local for info in entry.infos.values())
        for entry in state.tensors.entries
    )  # fmt: skip


def _finding(scene: Scene, ranks: tuple[int, ...], table: Floats, since: int) -> Finding:
    newest = table[:, -1].astype(int).tolist()
    alike: dict[int, list[int]] = {}
    for rank, count in zip(ranks, newest, strict=True):
        alike.setdefault(count, []).append(rank)
    odd, _ = minority(sorted(alike.values(), key=lambda some: (-len(some), some)))
    culprits = odd or ranks
    series = scene.state.signals.series(ranks[0], "scaler/skipped")
    step = int(series.steps[since]) if series is not None else 0
    said = "; ".join(f"{words.ranks_text(some)}: {count}" for count, some in sorted(alike.items()))
    text = (
        f"the gradient scalers of {words.ranks_text(ranks)} have skipped different numbers of steps ({said}) since step"
        f" {step}: the optimizers of replicas have not made the same steps"
    )
    told = tuple(Evidence(f"skipped {count} of {table.shape[1]} steps", "signals", rank, step)
                 for rank, count in list(zip(ranks, newest, strict=True))[:8])  # fmt: skip
    why = "each scaler looks for infinities in gradients of its own rank: they are unscaled before they are reduced"
    cause = Cause("scaler", why, 0.85, Basis.OBSERVATION, told)
    return Finding(
        "divergence.optimizer", Severity.CRITICAL, culprits, words.shortened(text + "."), (cause,),
        names=("grad_scaler", "step", "optimizer state"), step=step, sure=True, goes_on=True, key="scaler",
    )  # fmt: skip
