"""Learning rates and other settings of optimizers that are not the same on ranks that apply the same updates."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.state.job import JobState

MAX_GROUPS = 16
SAME = 1e-9  # relative
TIMES = 2  # told steps at which they must differ
NEWEST = 4  # of which one must be among the newest: two schedules may cross
COMMON = 3  # rates that ranks must have in common to be on one schedule


class Apart(NamedTuple):
    """One setting that differs."""

    name: str  # lr, weight_decay, …
    group: int
    classes: list[list[int]]  # ranks by value, the largest class first
    values: dict[int, str]  # by rank, at the step `since`
    since: int  # the first step that was seen to be made with different ones
    may_since: int  # the first that may have been: rates are told of some steps only
    schedule: bool  # they are, or may be, at different places of a schedule
    stays: tuple[int, ...] = ()  # ranks whose rate stays as it was while that of the others goes on to change


def apart(state: JobState, ranks: Sequence[int], *, ever: bool = False) -> Apart | None:
    """The first parameter group whose settings differ between these ranks; the rate before all others.

    Args:
        ever: Also rates that differed for a while and are equal again.
    """
    for group in range(MAX_GROUPS):
        found = _rates(state, ranks, group, ever) or _settings(state, ranks, group)
        if found is not None:
            return found
    return None


def _rates(state: JobState, ranks: Sequence[int], group: int, ever: bool) -> Apart | None:
    told = [state.signals.series(rank, f"lr/{group}") for rank in ranks]
    series = [one for one in told if one is not None and len(one)]
    if len(series) < len(told):
        return None
    # Not all that was told has come from each rank, so only steps that all have told are compared.
    steps = np.unique(series[0].steps)
    for one in series[1:]:
        steps = np.intersect1d(steps, one.steps)
    if not len(steps):
        return None
    values = np.array([s.values[np.searchsorted(s.steps, steps, "right") - 1] for s in series])
    differ = np.flatnonzero(_differ(values))
    if len(differ) < TIMES or (not ever and differ[-1] < len(steps) - NEWEST):
        return None
    since, before = int(steps[differ[0]]), int(steps[differ[0] - 1]) if differ[0] else 0
    first = {rank: f"{value:.6g}" for rank, value in zip(ranks, values[:, differ[0]], strict=True)}
    stays = tuple(rank for rank, mine in zip(ranks, values, strict=True) if _stays(mine, int(differ[0])))
    moves = all(_moves(mine, int(differ[0])) for rank, mine in zip(ranks, values, strict=True) if rank not in stays)
    stays = stays if moves and len(stays) < len(ranks) and not _follows_metric(state, ranks) else ()
    schedule = bool(stays) or (differ[0] > 0 and _on_one_schedule(state, ranks, values, int(differ[0])))
    return Apart("lr", group, _classes(first), first, since, before + 1, schedule, stays)


def _follows_metric(state: JobState, ranks: Sequence[int]) -> bool:
    """Whether a scheduler goes by a metric, which each rank may have of its own."""
    facts = [state.signals.fact(rank, "lr/scheduler") for rank in ranks]
    return any("Plateau" in fact[1] for fact in facts if fact is not None)


def _stays(mine: NDArray[np.float64], since: int) -> bool:
    return since > 0 and bool((mine[since - 1 :] == mine[since - 1]).all())


def _moves(mine: NDArray[np.float64], since: int) -> bool:
    """Whether it goes on to change, as with a schedule, and has not been set once."""
    return len(set(mine[since - 1 :])) > TIMES


def _differ(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    spread: NDArray[np.bool_] = values.max(axis=0) - values.min(axis=0) > SAME * np.abs(values).max(axis=0)
    return spread


def _on_one_schedule(state: JobState, ranks: Sequence[int], values: NDArray[np.float64], since: int) -> bool:
    """Whether they had rates in common; what was equal before counts only where some rate still changes."""
    made = {fact[1] for rank in ranks if (fact := state.signals.fact(rank, "lr/scheduler")) is not None}
    if len(made) > 1:
        return True
    if not any(_moves(mine, since) for mine in values):
        values = values[:, since:]
    common = set(np.round(values[0] / max(values.max(), 1e-300), 9))
    for mine in values[1:]:
        common &= set(np.round(mine / max(values.max(), 1e-300), 9))
    return len(common) >= COMMON


def _settings(state: JobState, ranks: Sequence[int], group: int) -> Apart | None:
    facts = {rank: state.signals.fact(rank, f"optimizer/{group}") for rank in ranks}
    texts = {rank: fact[1] for rank, fact in facts.items() if fact is not None}
    if len(texts) < len(facts) or len(set(texts.values())) < 2:
        return None
    tables = {rank: _table(text) for rank, text in texts.items()}
    for name in sorted({name for table in tables.values() for name in table}):
        values = {rank: table.get(name, "none") for rank, table in tables.items()}
        if len(set(values.values())) > 1:
            since = max(fact[0] for fact in facts.values() if fact is not None)
            return Apart(name, group, _classes(values), values, since, since, schedule=False)
    return None


def _table(text: str) -> dict[str, str]:
    kind, *parts = text.split(" ")
    return {"optimizer": kind} | {name: value for name, _, value in (part.partition("=") for part in parts)}


def _classes(values: dict[int, str]) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for rank, value in values.items():
        found.setdefault(value, []).append(rank)
    return sorted(found.values(), key=lambda alike: (-len(alike), alike))
