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
    swapped = [fact[1] for rank in ranks if (fact := state.signals.fact(rank, "autocast/swapped")) is not None]
    if swapped:
        yield _swapped(scene, ranks, swapped)
        return
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


def _swapped(scene: Scene, ranks: tuple[int, ...], modules: list[str]) -> Finding:
    """Weights were written in place between two passes of one region."""
    details = [scene.state.detail(rank) for rank in ranks]
    first = min(detail.stale_cast_step for detail in details)
    does = words.verb(ranks, "computes", "compute")
    said = (
        f"{words.ranks_text(ranks)} {does} with old copies of the weights, from step"
        f" {first} on at the latest: {modules[0]} is called twice in one autocast region, with other weights the second"
        f" time, and both times autocast uses the copy that it made at first"
    )
    evidence = tuple(
        Evidence(f"the weight of {module} has changed between two calls in one region that keeps casts", "probe", rank,
                 detail.stale_cast_step)
        for rank, detail, module in zip(ranks, details, modules, strict=False)
    )  # fmt: skip
    places = tuple(Location(r, d.stale_cast_site) for r, d in zip(ranks, details, strict=True) if d.stale_cast_site)
    text = "weights are swapped inside an autocast region"
    return Finding(
        "precision.stale_cache", Severity.CRITICAL, ranks, words.shortened(said),
        (Cause("swap", text, 0.95, Basis.OBSERVATION, evidence),), names=("autocast", "cache", modules[0], "kl"),
        locations=places, step=first, sure=True, goes_on=True, key="stale casts",
    )  # fmt: skip
