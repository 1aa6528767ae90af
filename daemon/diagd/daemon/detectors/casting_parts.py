"""Parts of a forward pass that run without the autocast that the rest of it, or they themselves before, run under."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.state.model import Frame
from diagd.daemon.state.signals import Series, SignalBook

SINCE = 8  # steps without it, one after the other
AGAIN = 2  # looks at backward passes
MUCH = 0.3  # share of the modules' calls that ran under it
LOOKS = 3  # at forward passes, at which all of them ran under it, and then those at which some did not
SOME = 0.05  # of the modules


def parts_off(signals: SignalBook) -> Iterator[Finding]:
    """At most one finding of each kind for all ranks."""
    yield from [*_recomputed(signals), *_cut(signals)] or _lost(signals)


def _lost(signals: SignalBook) -> Iterator[Finding]:
    """Modules that ran under it at look after look, and run where it is switched off at the newest ones."""
    told = {r: series for r in signals.ranks("autocast/lost") if (series := signals.series(r, "autocast/lost"))}
    found = {rank: step for rank, series in told.items() if (step := _lost_since(series)) is not None}
    if not found or any(int(told[rank].steps[-1]) < min(found.values()) for rank in told if rank not in found):
        return  # not all ranks are looked at in the same step
    ranks, step = tuple(sorted(found)), min(found.values())
    if any(_has_another_reason(signals, rank, step) for rank in ranks):
        return
    facts = [fact for rank in ranks if (fact := signals.fact(rank, "autocast/lost/of")) is not None]
    count, listed = facts[0][1].split("\t") if facts else ("some", "")
    names = [name for name in listed.split(",") if name]
    place = _place(signals, ranks, "autocast/lost")
    more = f" and {int(count) - len(names)} more" if names and int(count) > len(names) else ""
    why = f": {words.place_text(place)} enters a region inside it that switches it off" if place is not None else ""
    text = (
        f"{', '.join(names) or 'modules'}{more} of {words.ranks_text(ranks)} ran under autocast and no longer"
        f" {'do' if count != '1' else 'does'}, since step {step} at the latest, while the rest of the forward pass"
        f" does{why}"
    )
    evidence = tuple(
        Evidence(f"{told[rank].values[-1]:.0%} of the modules that ran under autocast run without it alone", "probe",
                 rank, since) for rank, since in sorted(found.items())[:4]
    )  # fmt: skip
    one = finding(ranks, "region", text, evidence, step)
    yield replace(one, key="autocast parts", names=("autocast", *names), locations=_locations(ranks, place))


def _has_another_reason(signals: SignalBook, rank: int, step: int) -> bool:
    """Whether no region casts any more, or one is left with autocast off: either is told by itself."""
    on, cut = signals.series(rank, "autocast/on"), signals.series(rank, "autocast/cut")
    return bool(on and not on.values[-1]) or bool(cut and int(cut.steps[-1]) >= step)


def _lost_since(series: Series) -> int | None:
    """The first look at which some ran without it; None where that has changed to and fro, or is not known."""
    lost = series.values >= SOME
    kept = np.flatnonzero(~lost)
    since = int(kept[-1]) + 1 if len(kept) else 0
    if len(lost) - since < LOOKS or since < LOOKS or series.values[since - LOOKS : since].any():
        return None
    return int(series.steps[since])


def _place(signals: SignalBook, ranks: tuple[int, ...], name: str) -> Frame | None:
    facts = (fact for rank in ranks if (fact := signals.fact(rank, name)) is not None)
    return next((found_at for _, said in facts if (found_at := places.told(said)) is not None), None)


def _locations(ranks: tuple[int, ...], place: Frame | None) -> tuple[Location, ...]:
    return tuple(Location(rank, place) for rank in ranks[:4]) if place is not None else ()


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
    place = _place(signals, ranks, "autocast/cut")
    where = f" in {words.place_text(place)}" if place is not None else ""
    text = (
        f"something in the autocast region of {words.ranks_text(ranks)} switches autocast off{where} and not on again,"
        f" since step {step}: what follows in the region runs in full precision"
    )
    told = tuple(
        Evidence("autocast is off at the end of a region that has switched it on", "probe", rank, since)
        for rank, since in sorted(found.items())[:4]
    )
    yield replace(finding(ranks, "cut", text, told, step), locations=_locations(ranks, place))


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
    yield finding(ranks, "recomputed", text, told, step)


def finding(
    ranks: tuple[int, ...], key: str, text: str, evidence: tuple[Evidence, ...], step: int | None,
    kind: str = "precision.autocast_off",
) -> Finding:  # fmt: skip
    """A warning for these ranks; `key` is that of its fix."""
    cause = Cause(key, text, 0.9, Basis.OBSERVATION, evidence)
    return Finding(kind, Severity.WARNING, ranks, words.shortened(text + "."), (cause,), names=("autocast",), step=step,
                   sure=True, goes_on=True, key=f"autocast {key}")  # fmt: skip
