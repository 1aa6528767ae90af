"""Ranks that compute in another precision than their script means."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.scene import Scene


def stale_casts(scene: Scene) -> Iterator[Finding]:
    """Ranks whose forward passes use casts of weights from before these changed; all of them as one finding."""
    state = scene.state
    ranks = tuple(rank for rank, detail in sorted(state.details.items()) if detail.stale_cast_step)
    if not ranks:
        return
    details = [state.detail(rank) for rank in ranks]
    first = min(detail.stale_cast_step for detail in details)
    sites = [(rank, detail.stale_cast_site) for rank, detail in zip(ranks, details, strict=True)]
    said = (
        f"the forward passes of {words.ranks_text(ranks)} use old copies of the weights, from step {first} on at the"
        f" latest: autocast keeps its casts until the outermost region ends, and it lasts over the optimizer's steps"
    )
    evidence = tuple(
        Evidence(
            "two backward passes have the same cast of a weight in their graphs, and the weight has changed in between",
            "probe", rank, detail.stale_cast_step,
        )
        for rank, detail in zip(ranks, details, strict=True)
    )  # fmt: skip
    text = "an autocast region around the loop instead of around each forward pass"
    yield Finding(
        "precision.stale_cache",
        Severity.CRITICAL,
        ranks,
        said,
        (Cause("region", text, 0.95, Basis.OBSERVATION, evidence),),
        names=("autocast", "cache"),
        locations=tuple(Location(rank, site) for rank, site in sites if site is not None),
        step=first,
        sure=True,
        goes_on=True,
        key="stale casts",
    )
