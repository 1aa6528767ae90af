"""Normalisation that each rank keeps for itself: what is trained and what is counted in all such layers, and no more.

Where sites or domains differ that is done on purpose (Li et al., FedBN, 2021): the script leaves these layers, and
these alone, out of what it reduces. It is worth knowing, as it is also what a wrong pattern brings about.
"""

from collections.abc import Iterable
from dataclasses import replace

from diagd.daemon.detectors.differing import How, Parted
from diagd.daemon.detectors.models import model_of
from diagd.daemon.state.job import JobState

STATISTICS = "running_mean"


def set_aside(state: JobState, found: Iterable[Parted]) -> list[Parted]:
    """The same; those of a model in which nothing but all its normalisation layers parted explain nothing else."""
    found = list(found)
    own = {model for model in {model_of(one.entry) for one in found} if _are_own(state, model, found)}
    return [replace(one, aside=True) if model_of(one.entry) in own else one for one in found]


def _are_own(state: JobState, model: str, found: list[Parted]) -> bool:
    mine = [one for one in found if model_of(one.entry) == model]
    statistics = [e for e in state.tensors.entries if model_of(e) == model and _leaf(e.name) == STATISTICS]
    layers = {_layer(e.name) for e in statistics}
    if not layers or not all(e.agreement.unequal for e in statistics):
        return False
    trained = {_layer(one.entry.name) for one in mine if one.entry.kind in ("parameter", "gradient")}
    all_ = {_layer(one.entry.name) for one in mine if one.entry.kind != "state"}
    return trained == layers == all_ and all(one.how in (How.UNREDUCED, How.NEVER) for one in mine)


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
