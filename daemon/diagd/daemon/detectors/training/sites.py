"""Where in the script the training is whose numbers are wrong: the call of backward, or where the schedule was made."""

from dataclasses import replace

from diagd.daemon.detectors import places
from diagd.daemon.detectors.finding import Finding, Location
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Frame

SHOWN = 3  # ranks
SCHEDULED = frozenset({"training.lr_fault"})
COMPUTED = frozenset({
    "numerics.nonfinite", "numerics.gradient_explosion", "numerics.gradient_vanishing", "numerics.gradient_imbalance",
    "training.loss_spike", "training.loss_divergence", "training.loss_plateau", "training.loss_component",
    "training.gradient_accumulation", "divergence.gradient",
})  # fmt: skip


def located(scene: Scene, finding: Finding) -> Finding:
    """The same with a place in the script, where the rule knows none and one of these says where to look."""
    if finding.locations or finding.kind not in SCHEDULED | COMPUTED:
        return finding
    ranks = finding.ranks or tuple(sorted(scene.state.details))
    sites = ((rank, _site(scene, rank, finding.kind in SCHEDULED)) for rank in ranks[:SHOWN])
    return replace(finding, locations=tuple(Location(rank, site) for rank, site in sites if site is not None))


def _site(scene: Scene, rank: int, scheduled: bool) -> Frame | None:
    fact = scene.state.signals.fact(rank, "lr/scheduler/site") if scheduled else None
    if fact is not None:
        return places.told(fact[1])
    return scene.state.detail(rank).backward_site if rank in scene.state.details else None
