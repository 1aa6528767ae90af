"""Autocast that no longer applies: it did at step after step, and then never again; or it does on other ranks.

Healthy are evaluations without it (there is no backward pass), regions around a part of the model, steps with and
without it by turns (several models), and trainings that enter it only after a while.
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.casting_parts import MUCH, finding, parts_off
from diagd.daemon.detectors.finding import Evidence, Finding
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import JobState
from diagd.daemon.state.signals import Series, SignalBook

BEFORE, SINCE = 12, 8  # steps with it without a break, and then without it
LOOKS = 3  # at forward passes, of which a few are looked at
NAMES = {1: "bfloat16", 2: "float16", 3: "another dtype"}


def autocast_off(scene: Scene) -> Iterator[Finding]:
    """One finding for the ranks that have stopped, else one for those that do what the others do not."""
    signals = scene.state.signals
    ranks = signals.ranks("autocast/on")
    stopped = {rank: step for rank in ranks if (step := _stopped(signals, rank)) is not None}
    if stopped:
        rest = [rank for rank in ranks if rank not in stopped]
        if all(_goes_on(signals, rank, max(stopped.values())) for rank in rest):
            yield _off(ranks, stopped)
        return
    yield from _differing(scene.state, ranks)
    yield from parts_off(signals)


def _stopped(signals: SignalBook, rank: int) -> int | None:
    """The first step without it; None where it never was steady, or still is."""
    found = [_since(signals.series(rank, "autocast/on"), 0.5, BEFORE, SINCE),
             _since(signals.series(rank, "autocast/share"), MUCH, LOOKS, LOOKS - 1)]  # fmt: skip
    return min((step for step in found if step is not None), default=None)


def _goes_on(signals: SignalBook, rank: int, step: int) -> bool:
    """Whether it is known to have run under it later than that: not all ranks are looked at in the same step."""
    shares = signals.series(rank, "autocast/share")
    return shares is not None and bool((shares.steps[shares.values > 0] > step).any())


def _since(series: Series | None, least: float, before: int, since: int) -> int | None:
    """Where the values fall to zero for good, after so many above `least` in a row."""
    if series is None or len(series) < before + since:
        return None
    values = series.values
    on = np.flatnonzero(values > 0)
    if not len(on) or len(values) - on[-1] - 1 < since:
        return None
    first_off = int(on[-1]) + 1
    earlier = values[max(first_off - before, 0) : first_off]
    if len(earlier) < before or (earlier < least).any():
        return None
    return int(series.steps[first_off])


def _off(ranks: tuple[int, ...], stopped: dict[int, int]) -> Finding:
    culprits, step = tuple(sorted(stopped)), min(stopped.values())
    others = sorted(set(ranks) - set(culprits))
    there = f", while {words.ranks_text(others)} still do" if others else ""
    text = (
        f"the forward passes of {words.ranks_text(culprits)} ran under autocast until step {step - 1}, and do no longer"
        f" since step {step}{there}"
    )
    evidence = tuple(
        Evidence(f"no module runs in a region that casts since step {since}", "probe", rank, since)
        for rank, since in sorted(stopped.items())
    )[:4]
    return finding(culprits, "region" if not there else "rank", text, evidence, step)


def _differing(state: JobState, ranks: tuple[int, ...]) -> Iterator[Finding]:
    signals = state.signals
    kinds = {rank: _steady(signals, rank) for rank in ranks}
    known = {rank: kind for rank, kind in kinds.items() if kind is not None}
    if len(known) < len(ranks) or len(set(known.values())) < 2 or not _alike(state, ranks):
        return
    casts = {kind for kind in known.values() if kind}
    if 0 in known.values():
        culprits = tuple(sorted(rank for rank, kind in known.items() if kind == 0))
        others = tuple(sorted(set(ranks) - set(culprits)))
        dtypes = " and ".join(NAMES[int(kind)] for kind in sorted(casts))
        text = (
            f"{words.ranks_text(culprits)} {words.verb(culprits, 'trains', 'train')} without autocast, and"
            f" {words.ranks_text(others)} under autocast to {dtypes}"
        )
        kind = "precision.autocast_off"
    else:
        by_kind = sorted(casts, key=lambda kind: -sum(other == kind for other in known.values()))
        culprits = tuple(sorted(rank for rank, kind in known.items() if kind != by_kind[0]))
        shares = ((NAMES[int(kind)], sorted(r for r, k in known.items() if k == kind)) for kind in by_kind)
        said = ", ".join(f"{words.ranks_text(some)} to {dtype}" for dtype, some in shares)
        text = f"the ranks train under autocast to different dtypes: {said}"
        kind = "precision.dtype_mismatch"
    shown = (*culprits[:2], *sorted(set(ranks) - set(culprits))[:2])
    evidence = tuple(Evidence(_casts_to(known[rank]), "probe", rank) for rank in shown)
    since = max(_steady_since(signals, rank) for rank in ranks)
    yield finding(culprits, "rank", text, evidence, since, kind)


def _steady_since(signals: SignalBook, rank: int) -> int:
    """The first step of the stretch that casts as the newest one does."""
    on = signals.series(rank, "autocast/on")
    if on is None:
        return 0
    other = np.flatnonzero(on.values != on.values[-1])
    return int(on.steps[int(other[-1]) + 1 if len(other) else 0])


def _alike(state: JobState, ranks: tuple[int, ...]) -> bool:
    """Whether all ranks train the same, as far as is known: stages and actors may have a precision of their own."""
    held = [set(entry.infos) for entry in state.tensors.entries if entry.kind == "parameter"]
    return not held or any(set(ranks) <= some for some in held)


def _casts_to(kind: float) -> str:
    return f"each step's region casts to {NAMES[int(kind)]}" if kind else "no module runs in a region that casts"


def _steady(signals: SignalBook, rank: int) -> float | None:
    """What the newest steps cast to: a number of NAMES, 0 nothing; None where it changes or is not known yet."""
    on, share = signals.series(rank, "autocast/on"), signals.series(rank, "autocast/share")
    if on is None or len(on) < BEFORE or len(set(on.values[-BEFORE:].tolist())) > 1:
        return None
    if share is not None and len(share) >= LOOKS and not share.values[-LOOKS:].any():
        return 0.0
    return float(on.values[-1])
