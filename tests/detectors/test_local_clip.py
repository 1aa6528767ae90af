"""Shards whose gradients were clipped each by its own norm, and shards that were clipped as they should be."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job, job
from tests.detectors.tensors import ledgers, own, same, training

from diagd.daemon.detectors.finding import Basis, Severity
from diagd.daemon.state.tensors import TensorInfo

FSDP1 = TensorInfo("Net._flat_param", shape=(1000,), placement="fsdp FULL_SHARD", local=True)
FSDP2 = TensorInfo("Net.a.weight", shape=(1000,), placement="dtensor S(0)", local=True)
STEPS = range(1, 31)
BEFORE = [[2.0 + 0.1 * (step % 7) for step in STEPS], [0.5 + 0.03 * (step % 5) for step in STEPS]]
LIMIT = 1.0


def told(tensor: TensorInfo, before: Sequence[Sequence[float]], after: Sequence[Sequence[float]], limit: float) -> Job:
    """What each rank's clipping returned, and the norm of its gradients afterwards."""
    made = training({tensor: own}, world=len(after))
    for rank, norms in enumerate(after):
        signals(made.state, rank, "grad_norm", STEPS, norms)
    for rank, norms in enumerate(before):
        signals(made.state, rank, "clip_norm", STEPS, norms)
        signals(made.state, rank, "clip_norm/limit", STEPS, [limit] * len(STEPS))
    return made


def own_norm(before: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[min(norm, LIMIT) for norm in norms] for norms in before]


def whole_norm(before: Sequence[Sequence[float]]) -> list[list[float]]:
    totals = [math.hypot(*norms) for norms in zip(*before, strict=True)]
    return [[norm * min(LIMIT / total, 1) for norm, total in zip(n, totals, strict=True)] for n in before]


def test_norms_that_were_returned_for_each_shard_alone_are_observed() -> None:
    found = told(FSDP1, BEFORE, own_norm(BEFORE), LIMIT).finds()
    assert (found.kind, found.ranks, found.severity) == ("divergence.gradient", (0, 1), Severity.CRITICAL)
    assert found.names == ("grad_norm", "clip_grad_norm_", "Net._flat_param")
    assert (found.causes[0].key, found.causes[0].basis) == ("local_norm", Basis.OBSERVATION)
    assert found.step == 1
    whole = math.hypot(BEFORE[0][0], BEFORE[1][0])
    assert f"over all shards the norm is {whole:.4g}" in found.summary


def test_shards_that_were_clipped_by_the_norm_of_all_are_in_order() -> None:
    totals = [math.hypot(*norms) for norms in zip(*BEFORE, strict=True)]
    assert not told(FSDP1, [totals, totals], whole_norm(BEFORE), LIMIT).find()


def test_parts_of_a_norm_that_is_still_to_be_summed_are_in_order() -> None:
    assert not told(FSDP2, BEFORE, whole_norm(BEFORE), LIMIT).find()


def test_gradients_below_the_limit_prove_nothing() -> None:
    assert not told(FSDP1, BEFORE, BEFORE, 100.0).find()


def test_a_scaling_by_hand_shows_as_one_largest_norm_of_several_shards() -> None:
    before = [[1.5 + 0.1 * (step % 7) for step in STEPS], [0.7 + 0.2 * (step % 5) for step in STEPS]]
    found = told(FSDP2, [], own_norm(before), LIMIT).finds()
    assert (found.kind, found.severity) == ("divergence.gradient", Severity.WARNING)
    assert found.causes[0].basis is Basis.INFERENCE


def test_replicated_weights_beside_the_shards_may_give_all_ranks_one_norm() -> None:
    norm = TensorInfo("Net.norm.weight", shape=(10,), placement="dtensor R", peers=(0, 1))
    made = training({FSDP2: own, norm: same}, world=2)
    for rank in range(2):
        signals(made.state, rank, "grad_norm", STEPS, [1.0] * 20 + [0.5] * 10)
    assert not made.find()


def test_shards_are_put_together_by_name_where_each_rank_names_itself_alone() -> None:
    made = job(2)
    for rank in range(2):
        made.state.tensors.apply(ledgers({replace(FSDP2, peers=(rank,)): own}, (rank,)), 2)
        signals(made.state, rank, "grad_norm", STEPS, [1.0] * 20 + [0.5] * 10)
    assert made.finds().ranks == (0, 1)


def test_a_flat_parameter_may_be_split_between_two_tensors() -> None:
    made = told(replace(FSDP1, peers=()), BEFORE, own_norm(BEFORE), LIMIT)
    split = job(2)
    for rank in range(2):
        mine = replace(FSDP1, name=f"Net.{'ab'[rank]}.weight")
        split.state.tensors.apply(ledgers({mine: own}, (rank,)), 2)
    split.state.signals = made.state.signals
    found = split.finds()
    assert (found.ranks, found.names[2:]) == ((0, 1), ("Net.a.weight", "Net.b.weight"))


def test_gradients_that_are_signs_have_one_norm_by_design() -> None:
    assert not told(FSDP2, [], [[math.sqrt(1000)] * 30] * 2, LIMIT).find()


@pytest.mark.parametrize(
    "tensor", [TensorInfo("Net.stage", shape=(1000,)), TensorInfo("Net.b", placement="ddp", peers=(0, 1))]
)
def test_stages_and_replicas_are_no_shards(tensor: TensorInfo) -> None:
    made = training({tensor: own if not tensor.peers else same}, world=2)
    for rank, norms in enumerate(own_norm(BEFORE)):
        signals(made.state, rank, "grad_norm", STEPS, norms)
        signals(made.state, rank, "clip_norm", STEPS, BEFORE[rank])
        signals(made.state, rank, "clip_norm/limit", STEPS, [LIMIT] * len(STEPS))
    assert not made.find()
