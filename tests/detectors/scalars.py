"""Scalars as agents tell them: what each rank's series are over the steps."""

from collections.abc import Iterable, Mapping, Sequence

from diagd.daemon.state.job import JobState


def signals(state: JobState, rank: int, name: str, steps: Iterable[int], values: Iterable[float]) -> None:
    """Put a series of one rank into the state."""
    state.signals.put(rank, name, list(steps), [float(value) for value in values])


def everywhere(state: JobState, ranks: Iterable[int], series: Mapping[str, Sequence[float]]) -> None:
    """The same series, one value for each step from 1 on, on all these ranks."""
    for rank in ranks:
        for name, values in series.items():
            signals(state, rank, name, range(1, len(values) + 1), values)
