"""What a scan could not judge of a run, and why."""

from collections.abc import Iterable, Iterator

import numpy as np

from diagd.daemon.detectors.numerics.out_of_range import exploded
from diagd.daemon.detectors.training.curves import Curve, curve_of, figure
from diagd.daemon.state.job import JobState
from diagd.daemon.state.metrics_names import PREFIX, find

FEW = 24  # samples: a spike is judged from 16 on, a loss that leaves from 24, a plateau from 100
STILL = 100  # samples of a plateau
LIMITED, ALIKE = 0.3, 1e-3  # of a norm's samples are as good as the highest: the limit of clipping


def left_open(state: JobState, samples: int, kinds: Iterable[str] = ()) -> list[str]:
    """A note each.

    Args:
        state: The run.
        samples: How many the metric has that has the most.
        kinds: Of what was found.
    """
    notes = []
    if samples < FEW:
        counted = f"{samples} sample{'s' * (samples != 1)} of a metric"
        notes.append(f"at most {counted}: too few for most rules, which need {FEW} or more")
    known = [find(state, rank, "loss") for rank in state.ranks()]
    norms = [find(state, rank, "grad_norm") for rank in state.ranks()]
    if any(known) and not any(norms) and samples >= STILL:  # a loss may stand still because nothing is trained
        notes.append(
            "no norm of gradients is logged (grad_norm): without it a loss within its noise, or a KL that stands still,"
            " is not judged"
        )
    if "numerics.gradient_explosion" not in kinds:
        notes += _norms(state, [name for found in norms for name in found[:1]][:1])
    return notes


def _norms(state: JobState, names: Iterable[str]) -> Iterator[str]:
    """Why logged norms of gradients say nothing, where that is so."""
    for name in names:
        rank = next(rank for rank in state.ranks() if state.signals.series(rank, name) is not None)
        curve, said = curve_of(state.signals.series(rank, name)), name.removeprefix(PREFIX)
        if (limit := _limit(curve)) is not None:
            yield (
                f"{said} is never above {figure(limit)}, and often just that: it seems to be logged after clipping, so"
                " how large gradients are is not judged"
            )
        elif (one := exploded(curve)) is not None:
            yield (
                f"{said} has grown from {figure(one.began)} to {figure(one.now)}: it may be the norm before clipping,"
                " and the loss is not worse: not judged"
            )


def _limit(curve: Curve) -> float | None:
    """What norms are clipped to."""
    if len(curve.values) < FEW or not (highest := float(curve.values.max())) > 0:
        return None
    at_limit = curve.values >= (1 - ALIKE) * highest
    return highest if float(np.mean(at_limit)) >= LIMITED else None
