"""Normalisation layers that each rank keeps for itself."""

from dataclasses import replace

from tests.detectors.states import Job
from tests.detectors.tensors import Content, own, same, training

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.state.tensors import TensorInfo

CONV = TensorInfo("Net.conv.weight", shape=(4, 4), placement="ddp", peers=(0, 1, 2))
APART: Content = lambda rank, step: own(rank, step) if step else same(rank, step)  # noqa: E731 - from the first step on


def layer(name: str) -> dict[TensorInfo, Content]:
    weight = TensorInfo(f"Net.{name}.weight", shape=(4,))
    statistics = TensorInfo(f"Net.{name}.running_mean", kind="buffer", shape=(4,), owned=False, trainable=False)
    return {weight: APART, replace(weight, kind="gradient"): own, statistics: APART}


def made(*layers: str, statistics_alike: bool = False, more: dict[TensorInfo, Content] | None = None) -> Job:
    tensors: dict[TensorInfo, Content] = {CONV: same, replace(CONV, kind="gradient"): same, **(more or {})}
    for name in layers:
        tensors |= {i: same if statistics_alike and i.kind == "buffer" else c for i, c in layer(name).items()}
    return training(tensors, 3, (0, 1, 2, 33, 65, 97))


def test_where_all_of_them_and_nothing_else_part_it_is_worth_knowing_and_no_more() -> None:
    found = made("bn1", "bn2").find()
    assert {f.severity for f in found} == {Severity.INFO}
    assert {name.rpartition(".")[0] for f in found for name in f.names} == {"Net.bn1", "Net.bn2"}


def test_where_their_statistics_are_kept_equal_they_are_not_meant_to_be_each_ranks_own() -> None:
    assert Severity.INFO not in {f.severity for f in made("bn1", "bn2", statistics_alike=True).find()}


def test_where_another_layer_parts_with_them_a_reduction_is_missing() -> None:
    other = TensorInfo("Net.head.weight", shape=(4,))
    found = made("bn1", more={other: APART, replace(other, kind="gradient"): own}).find()
    assert Severity.INFO not in {f.severity for f in found}
