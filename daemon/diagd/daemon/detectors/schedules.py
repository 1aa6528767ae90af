"""One schedule that is stepped on some ranks and not on others, which do not train copies of one model.

Of copies their rates tell (rates.py): they must be the same. Stages of a pipeline may have rates of their own, and
still none is made a schedule that is never to be stepped.
"""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.models import Models
from diagd.daemon.detectors.scene import Scene

LEAST = 32  # times that others have stepped it: an epoch may be so long


def stepped_by_some(scene: Scene) -> Iterator[Finding]:
    """One finding for each schedule."""
    made: dict[str, list[int]] = {}
    for rank in scene.state.signals.ranks("lr/scheduled"):
        fact = scene.state.signals.fact(rank, "lr/scheduler")
        if fact is not None:
            made.setdefault(fact[1], []).append(rank)
    for schedule, ranks in made.items():
        told = _told(scene, ranks)
        times = told[max(told)] if told else {}
        never = tuple(rank for rank in ranks if times.get(rank) == 0)
        others = tuple(rank for rank in ranks if times.get(rank, 0) >= LEAST)
        if never and others and not _copies(scene, {*never, *others}):
            step = min(step for step, counts in told.items() if counts[others[0]] >= LEAST)
            yield _finding(schedule, never, others, times, step)


def _told(scene: Scene, ranks: list[int]) -> dict[int, dict[int, int]]:
    """How often each had stepped it, by the steps that all have told it of."""
    series = {rank: scene.state.signals.series(rank, "lr/scheduled") for rank in ranks}
    told = {rank: dict(zip(one.steps, one.values, strict=True)) for rank, one in series.items() if one is not None}
    if len(told) < 2:
        return {}
    first, *rest = told.values()
    common = set(first).intersection(*rest)
    return {int(step): {rank: int(counts[step]) for rank, counts in told.items()} for step in common}


def _copies(scene: Scene, ranks: set[int]) -> bool:
    return any(len(ranks & replicas) > 1 for replicas in Models(scene.state).replicas)


def _finding(
    schedule: str, never: tuple[int, ...], others: tuple[int, ...], times: dict[int, int], step: int
) -> Finding:
    kind = schedule.partition(" ")[0]
    text = (
        f"{words.ranks_text(never)} {words.verb(never, 'has', 'have')} not once stepped the schedule ({kind}) of the"
        f" learning rate, which {words.ranks_text(others)} {words.verb(others, 'has', 'have')} stepped"
        f" {times[others[0]]} times: the rate there stays where it began"
    )
    told = tuple(Evidence(f"stepped {times[rank]} times", "probe", rank) for rank in (*never[:2], *others[:2]))
    why = "scheduler.step() is called in a branch that only some ranks go through, such as the last stage's"
    cause = Cause("schedule", why, 0.85, Basis.OBSERVATION, told)
    return Finding(
        "divergence.step", Severity.WARNING, never, words.shortened(text + "."), (cause,), waiting_ranks=(),
        names=("lr", "learning rate", "scheduler"), step=step, sure=True, goes_on=True, key="schedule",
    )  # fmt: skip
