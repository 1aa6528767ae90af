"""What ranks do beside their steps: evaluations and checkpoints, for which the others wait."""

from collections.abc import Mapping

from diagd.daemon.state.job import JobState
from diagd.daemon.state.pace import PAUSES

PART = 0.15  # of the time, that the others lose
ALWAYS_S = 10.0
PAUSED_OVER_S = 30.0  # the stretch over which it is added up what ranks spend beside their steps
TOGETHER = 0.25  # of what the longest pauses took on one rank, those of each other: all of them evaluate, or save


def longer(state: JobState) -> tuple[int, ...]:
    """Ranks that evaluate, or save, for longer than the others that do it too, or at every look."""
    found: set[int] = set()
    for pause in PAUSES:
        spent = _paused(state, pause, PAUSED_OVER_S)
        if len(spent) > 1 and max(spent.values()) > 0:
            meant = meant_s(spent)
            found |= {r for r in _longer(spent, PAUSED_OVER_S) if not meant[r]}
            lately_s = state.now_s - ALWAYS_S
            always = _longer(_paused(state, pause, ALWAYS_S), ALWAYS_S)
            found |= {r for r in always if state.paces[r].always_pauses(pause, lately_s)}
    return tuple(sorted(found))


def _paused(state: JobState, pause: str, over_s: float) -> dict[int, float]:
    alive = ((r, pace) for r, pace in state.paces.items() if not state.status(r).gone)
    return {r: pace.spent_s((pause,), state.now_s - over_s) for r, pace in alive}


def _longer(spent: Mapping[int, float], over_s: float) -> list[int]:
    """Ranks that spend more than the least of them by a part of the time in which that matters."""
    least = min(spent.values())
    return [r for r, s in spent.items() if s - least >= PART * over_s]


def meant_s(paused_s: Mapping[int, float]) -> dict[int, float]:
    """How long each rank makes the others wait because it is meant to, of what it spent in pauses of one kind.

    What it saves or evaluates alone; not where all do and it takes longer. The first rank has more to do even then: it
    gathers, computes the metrics and writes them down.
    """
    together = min(paused_s.values()) > TOGETHER * max(paused_s.values())
    return {r: 0.0 if together and r != min(paused_s) else spent_s for r, spent_s in paused_s.items()}
