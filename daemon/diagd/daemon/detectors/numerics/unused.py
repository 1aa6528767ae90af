"""Experts that never get a token: a router that always chooses the same ones leaves the others as they were made."""

import re

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.numerics.counted import Counts, Dead
from diagd.daemon.detectors.numerics.weights import is_expert, is_router, weights

COUNTS, STEPS = (
    6,
    100,
)  # in a row, and how many they span: any expert that is ever chosen has a gradient at some of them
MOST = 0.5  # of the experts' parameters: fewer may be those of a rare kind of sample
_NUMBERED = re.compile(r"^(.*?experts?\.\d+)\.", re.IGNORECASE)


def unused(counts: Counts) -> Dead | None:
    """Most of a rank's experts, where the others train."""
    silent, names = counts.always("without_gradient", COUNTS), counts.names("without_gradient")
    if not silent or not names or not all(is_expert(name) and not is_router(name) for name in names):
        return None
    entries = (e for e in counts.scene.state.tensors.entries if e.kind == "parameter" and counts.rank in e.infos)
    held = [e.name for e in entries if is_expert(e.name) and not is_router(e.name)]
    trained = [one.name for one in weights(counts.scene.state, counts.rank)]
    learn = any(is_expert(name) and not is_router(name) for name in trained)
    since = counts.since("without_gradient")
    if silent < MOST * len(held) or not learn or _last(counts) - since < STEPS:
        return None
    experts = list(dict.fromkeys(found[1] for name in names if (found := _NUMBERED.match(name)) is not None))
    routers = [name for name in trained if is_router(name)][:2]
    text = (
        f"{silent:.0f} of the {len(held)} parameters of experts have never had a gradient"
        f" ({', '.join(experts[:4]) or names[0]}): no token was ever sent to them, others take all"
    )
    return Dead(
        "unused experts", Severity.WARNING, text,
        "the router has come to choose the same experts always, and what is to balance them does not reach it: a term"
        " of counts alone has no gradient, or its weight is too small",
        (*experts, *names[:8], *routers), since, 0.85,
        (f"parameters in the optimizer without a gradient at {COUNTS} counts in a row: {', '.join(names[:4])}",),
    )  # fmt: skip


def _last(counts: Counts) -> int:
    series = counts.scene.state.signals.series(counts.rank, "parameters/without_gradient")
    return int(series.steps[-1]) if series is not None and len(series) else 0
