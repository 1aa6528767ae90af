"""Ledgers as agents tell them: tensors, and what each rank holds after which step."""

from collections.abc import Callable, Iterable, Mapping

from tests.detectors.states import Job, job

from diagd.daemon.state.tensors import LedgerNews, TensorInfo

Content = Callable[[int, int], int]  # what a rank holds after a step
STEPS = (0, 1, 2, 33, 65)


def same(rank: int, step: int) -> int:
    """On all ranks alike, and another one after each step."""
    return 1000 + step


def own(rank: int, step: int) -> int:
    """On each rank something else."""
    return 2000 * (rank + 1) + step


def only(odd: int, since: int, until: int = 10**9) -> Content:
    """On one rank something else between these steps."""
    return lambda rank, step: own(rank, step) if rank == odd and since <= step < until else same(rank, step)


def ledgers(
    tensors: Mapping[TensorInfo, Content], ranks: Iterable[int], steps: Iterable[int] = STEPS
) -> list[LedgerNews]:
    """What each of these ranks tells."""
    samples = [(row, step, hold) for row, hold in enumerate(tensors.values()) for step in steps]
    return [
        LedgerNews(
            rank, 100 + rank, 0, tuple(tensors),
            [row for row, _, _ in samples], [step for _, step, _ in samples],
            [hold(rank, step) for _, step, hold in samples],
        )
        for rank in ranks
    ]  # fmt: skip


def training(tensors: Mapping[TensorInfo, Content], world: int = 3, steps: Iterable[int] = STEPS) -> Job:
    """A job whose ranks step, communicate in each step, and hold these tensors."""
    made, steps = job(world), tuple(steps)
    for placed in made.ranks.values():
        placed.facts.step = max(steps)
        placed.facts.operations = placed.facts.step + 100
    made.train(*made.ranks).passes(1.0)
    made.state.tensors.apply(ledgers(tensors, range(world), steps), world)
    return made
