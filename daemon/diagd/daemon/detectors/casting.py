"""Autocast that no longer applies: it did at step after step, and then never again; or it does on other ranks.

Healthy are evaluations without it (there is no backward pass), regions around a part of the model, steps with and
without it by turns (several models), and trainings that enter it only after a while.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import JobState
from diagd.daemon.state.signals import Series, SignalBook

BEFORE, SINCE = 12, 8  # steps with it without a break, and then without it
LOOKS = 3  # at forward passes, of which a few are looked at
AGAIN = 2  # looks at backward passes
MUCH = 0.3  # share of the modules' calls that ran under it
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
    yield from _recomputed(signals)
    yield from _cut(signals)


def _cut(signals: SignalBook) -> Iterator[Finding]:
    """Regions in which something switches autocast off and leaves it off, at the newest steps one after the other."""
    found: dict[int, int] = {}
    for rank in signals.ranks("autocast/cut"):
        on, cut = signals.series(rank, "autocast/on"), signals.series(rank, "autocast/cut")
        if on is None or cut is None or len(cut) < SINCE or len(on) < SINCE:
            continue
        steps = cut.steps
        if steps[-1] >= on.steps[-1] and steps[-1] - steps[-SINCE] <= 2 * SINCE:
            gaps = np.flatnonzero(np.diff(steps) > SINCE)
            found[rank] = int(steps[int(gaps[-1]) + 1 if len(gaps) else 0])
    if not found:
        return
    ranks, step = tuple(sorted(found)), min(found.values())
    facts = (fact for rank in ranks if (fact := signals.fact(rank, "autocast/cut")) is not None)
    place = next((found_at for _, said in facts if (found_at := places.told(said)) is not None), None)
    where = f" in {words.place_text(place)}" if place is not None else ""
    text = (
        f"something in the autocast region of {words.ranks_text(ranks)} switches autocast off{where} and not on again,"
        f" since step {step}: what follows in the region runs in full precision"
    )
    told = tuple(
        Evidence("autocast is off at the end of a region that has switched it on", "probe", rank, since)
        for rank, since in sorted(found.items())[:4]
    )
    locations = tuple(Location(rank, place) for rank in ranks[:4]) if place is not None else ()
    yield replace(_finding(ranks, "cut", text, told, step), locations=locations)


def _recomputed(signals: SignalBook) -> Iterator[Finding]:
    """Parts of the model that a checkpoint runs again in the backward pass, without the autocast that they ran under.

    torch.utils.checkpoint restores it; gradients are otherwise taken at other values than the loss was made of.
    """
    found: dict[int, int] = {}
    for rank in signals.ranks("autocast/again"):
        again = signals.series(rank, "autocast/again")
        if again is not None and len(again) >= AGAIN and (again.values[-AGAIN:] < MUCH).all():
            under = np.flatnonzero(again.values >= MUCH)
            found[rank] = int(again.steps[int(under[-1]) + 1 if len(under) else 0])
    if not found:
        return
    ranks, step = tuple(sorted(found)), min(found.values())
    text = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'runs', 'run')} modules again in the backward pass without the"
        f" autocast that they ran under in the forward pass, at the latest since step {step}"
    )
    told = tuple(
        Evidence("modules that ran under autocast with gradients off ran again with gradients on, and not under it",
                 "probe", rank, since) for rank, since in sorted(found.items())[:4]
    )  # fmt: skip
    yield _finding(ranks, "recomputed", text, told, step)


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
    return _finding(culprits, "region" if not there else "rank", text, evidence, step)


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
    yield _finding(culprits, "rank", text, evidence, since, kind)


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


def _finding(
    ranks: tuple[int, ...], key: str, text: str, evidence: tuple[Evidence, ...], step: int | None,
    kind: str = "precision.autocast_off",
) -> Finding:  # fmt: skip
    cause = Cause(key, text, 0.9, Basis.OBSERVATION, evidence)
    return Finding(kind, Severity.WARNING, ranks, words.shortened(text + "."), (cause,), names=("autocast",), step=step,
                   sure=True, goes_on=True, key=f"autocast {key}")  # fmt: skip
