"""Steps of an optimizer whose parameters have no gradient at all: it updates nothing, and no error says so.

So it is where gradients are cleared between backward and step, where backward is not called any more, and where FSDP
holds sums back because an all-reduce over the replicas is never asked for (set_requires_all_reduce).
"""

from collections.abc import Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.saying import cause, finding, seen

COUNTS = 4  # in a row


def bare(scene: Scene) -> Iterator[Finding]:
    """All ranks on which the newest counts have met no gradient, though there were some before."""
    since = {rank: step for rank in scene.state.signals.ranks("parameters/bare") if (step := _since(scene, rank))}
    if not since:
        return
    ranks, step = tuple(sorted(since)), min(since.values())
    text = (
        f"the optimizer of {words.ranks_text(ranks)} steps without any gradient since step {step}: no parameter is"
        " updated"
    )
    told = [seen("no parameter of the optimizer has a gradient when it steps", rank, since[rank]) for rank in ranks[:4]]
    why = cause(
        "bare",
        "gradients are cleared before the step, backward is not called, or a wrapper holds them back for a reduction"
        " that never comes",
        0.85,
        *told,
        basis=Basis.OBSERVATION,
    )
    yield finding("training.dead_parameters", Severity.CRITICAL, ranks, text, why, names=("optimizer", "gradients"),
                  step=step, key="dead bare")  # fmt: skip


def _since(scene: Scene, rank: int) -> int:
    """The step of the first of these counts; 0 where the last ones have met some gradient, or none ever did."""
    series, owned = (scene.state.signals.series(rank, f"parameters/{what}") for what in ("bare", "owned"))
    if series is None or owned is None or len(series) < COUNTS or not owned.values[-1]:
        return 0
    some = np.flatnonzero(series.values < owned.values[-1])
    first = int(some[-1]) + 1 if len(some) else 0
    return int(series.steps[first]) if first and len(series) - first >= COUNTS else 0
