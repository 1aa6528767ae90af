"""The tensors of a process's models: found without being told, named alike on every rank, each with who must agree."""

import copy
import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from diagd.probes import inventory
from diagd.probes.box.ledger import Flag, Kind
from diagd.probes.inventory import Found


class Tower(nn.Module):
    """A name of its own, so that models of other tests are not taken for it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)


class Spire(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = Tower()
        self.top = nn.Linear(8, 8)


class Steeple(nn.Linear):
    def __init__(self) -> None:
        super().__init__(5, 5)


@pytest.fixture
def four_ranks() -> Iterator[None]:
    """As rank 1 of 4 whose collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield
    gc.collect()  # parts of a mesh cannot say what they are once the group is gone
    dist.destroy_process_group()


def found(title: str) -> dict[str, Found]:
    return {one.name: one for one in inventory.take() if one.name.partition(".")[0].startswith(title)}


def flags(one: Found) -> Flag:
    return Flag(one.flags)


def test_a_model_is_found_with_its_own_names_and_what_its_optimizer_owns() -> None:
    model = Tower()
    model.norm.bias.requires_grad_(False)
    kept: Any = torch.optim.SGD(model.body.parameters(), lr=0.1)
    seen = found("Tower")
    assert list(seen) == [
        "Tower.body.weight", "Tower.body.bias", "Tower.norm.weight", "Tower.norm.bias",
        "Tower.norm.running_mean", "Tower.norm.running_var", "Tower.norm.num_batches_tracked",
    ]  # fmt: skip
    assert flags(seen["Tower.body.weight"]) == Flag.TRAINABLE | Flag.OWNED | Flag.TRAINED_MODEL
    assert flags(seen["Tower.norm.weight"]) == Flag.TRAINABLE | Flag.TRAINED_MODEL
    assert flags(seen["Tower.norm.bias"]) == Flag.TRAINED_MODEL
    assert seen["Tower.norm.running_var"].kind == Kind.BUFFER
    assert not flags(seen["Tower.norm.running_var"]) & Flag.TRANSIENT
    model.register_buffer("seen", torch.zeros(2), persistent=False)
    assert flags(found("Tower")["Tower.seen"]) & Flag.TRANSIENT
    assert seen["Tower.body.weight"].tensor() is model.body.weight
    model.body.weight = nn.Parameter(torch.ones(2))
    assert seen["Tower.body.weight"].tensor() is model.body.weight
    del kept


def test_a_tied_tensor_is_taken_once_and_a_model_inside_another_is_no_model() -> None:
    spire = Spire()
    spire.top.weight = spire.base.body.weight
    seen = found("Spire")
    assert "Spire.base.body.weight" in seen
    assert "Spire.top.weight" not in seen
    assert not found("Tower")


def test_of_twins_the_untrained_one_is_a_copy_and_two_alike_are_left_out() -> None:
    trained = Tower()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    twin = copy.deepcopy(trained)
    seen = found("Tower")
    assert seen["Tower.body.weight"].module is trained.body
    assert seen["Tower (copy).body.weight"].module is twin.body
    assert flags(seen["Tower (copy).body.weight"]) == Flag.TRAINABLE | Flag.COPY
    third = copy.deepcopy(twin)
    assert not any(name.startswith("Tower (copy)") for name in found("Tower"))
    del optimizer, third


def test_of_two_trained_twins_the_one_is_meant_whose_optimizer_steps() -> None:
    old, new = Tower(), Tower()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (old, new)]
    assert not found("Tower")
    seen = {one.name: one for one in inventory.take(optimizers[1])}
    assert seen["Tower.body.weight"].module is new.body


def test_models_of_one_class_are_told_apart_by_what_they_hold() -> None:
    small, large = nn.Sequential(nn.Linear(3, 17)), nn.Sequential(nn.Linear(3, 19))
    names = {one.name.partition(".")[0] for one in inventory.take() if one.module in (small[0], large[0])}
    assert len(names) == 2
    assert all(name.startswith("Sequential#") for name in names)


def test_what_is_not_to_be_read_is_none() -> None:
    model = nn.Linear(3, 4, device="meta")
    assert inventory.held(model, "weight", Kind.PARAMETER) is None
    assert inventory.held(model, "none", Kind.PARAMETER) is None


@pytest.mark.usefixtures("four_ranks")
def test_under_ddp_all_replicas_agree_and_buffers_only_where_they_are_not_broadcast() -> None:
    tower = Tower()
    tower._ddp_params_and_buffers_to_ignore = ["body.bias"]  # type: ignore[assignment]  # as the wrapper reads it
    wrapped = DistributedDataParallel(tower)
    seen = found("Tower")
    assert seen["Tower.body.weight"].placement.peers == (0, 1, 2, 3)
    assert seen["Tower.body.bias"].placement.peers is None
    assert flags(seen["Tower.norm.running_mean"]) & Flag.LOCAL
    tower.norm.register_buffer("mask", torch.ones(8))  # which DDP does not know
    tower.norm.running_var = torch.ones(8)
    assert found("Tower")["Tower.norm.mask"].placement.peers == (0, 1, 2, 3)
    assert found("Tower")["Tower.norm.running_var"].placement.peers == (0, 1, 2, 3)
    assert flags(found("Tower")["Tower.norm.running_mean"]) & Flag.LOCAL
    del wrapped, tower, seen
    group = dist.new_group([1, 3])
    kept = DistributedDataParallel(Tower(), process_group=group, broadcast_buffers=False)
    assert found("Tower")["Tower.norm.running_mean"].placement.peers == (1, 3)
    del kept


@pytest.mark.usefixtures("four_ranks")
def test_a_wrapper_over_a_single_rank_makes_nothing_the_same() -> None:
    alone, mesh = dist.new_group([1]), init_device_mesh("cpu", (4, 1), mesh_dim_names=("a", "b"))["b"]
    kept = [
        DistributedDataParallel(Tower(), process_group=alone, broadcast_buffers=False),
        FullyShardedDataParallel(Spire(), process_group=alone, device_id=torch.device("cpu"), use_orig_params=True),
        fully_shard(Steeple(), mesh=mesh),
    ]  # fmt: skip
    for title in ("Tower", "Spire", "Steeple"):
        told = {(one.placement.text[-12:], one.placement.peers, one.placement.local)
                for name, one in found(title).items() if name.endswith(".weight")}  # fmt: skip
        assert told == {(" of one rank", None, False)}, title
    del kept


@pytest.mark.usefixtures("four_ranks")
def test_replicas_whose_shards_are_on_one_rank_each_are_meant_to_agree_though_torch_reduces_nothing() -> None:
    mesh = init_device_mesh("cpu", (4, 1), mesh_dim_names=("replicate", "shard"))
    kept = FullyShardedDataParallel(
        Spire(), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_id=torch.device("cpu"),
        use_orig_params=True,
    )  # fmt: skip
    weights = [one for name, one in found("Spire").items() if name.endswith(".weight")]
    assert weights
    assert {(one.placement.text, one.placement.peers) for one in weights} == {
        ("fsdp NO_SHARD of one rank", (0, 1, 2, 3))
    }
    del kept


class DeepSpeedEngine(nn.Module):
    """As much as is read of DeepSpeed's; it is not among what development installs."""

    def __init__(self, module: nn.Module, stage: int, group: Any) -> None:
        super().__init__()
        self.module, self.stage, self.data_parallel_group = module, stage, group

    def zero_optimization_stage(self) -> int:
        return self.stage


@pytest.mark.usefixtures("four_ranks")
def test_under_zero_replicas_agree_up_to_stage_2_and_experts_are_left_to_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed.runtime.engine", sys.modules[__name__])
    tower = Tower()
    vars(tower.body.bias)["allreduce"] = False  # as DeepSpeed marks an expert's
    kept = DeepSpeedEngine(tower, 1, dist.new_group([0, 1]))
    seen = found("Tower")
    assert seen["Tower.body.weight"].placement[:2] == ("zero 1", (0, 1))
    assert seen["Tower.norm.running_mean"].placement.peers == (0, 1)
    assert seen["Tower.body.bias"].placement.text == "plain"
    kept.stage = 3
    assert found("Tower")["Tower.body.weight"].placement == ("zero 3", None, True, (0, 1), ())
    del kept.data_parallel_group  # while it is being made
    assert found("Tower")["Tower.body.weight"].placement.text == "plain"


def placed(name: str) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    seen = found("Tower")[name]
    assert not flags(seen) & Flag.LOCAL
    return seen.placement.peers, seen.placement.beside


@pytest.mark.usefixtures("four_ranks")
def test_of_a_dtensor_those_agree_that_differ_in_replicated_dimensions_alone() -> None:
    tower = Tower()
    fully_shard(tower.body, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")))
    seen = found("Tower")
    assert seen["Tower.body.weight"].placement.peers == (1, 3)
    assert seen["Tower.body.weight"].tensor().shape == (4, 8)
    assert seen["Tower.norm.weight"].placement.text == "plain"
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    beside = Tower()
    fully_shard(beside.norm, mesh=mesh["shards"])  # within each replica alone
    fully_shard(beside.body, mesh=mesh)
    del tower, seen
    seen = found("Tower")
    assert seen["Tower.norm.weight"].placement.peers == (1, 3)
    assert not flags(seen["Tower.norm.weight"]) & Flag.LOCAL
    mostly = Tower()
    del beside, seen
    fully_shard(mostly.body, mesh=mesh["replicas"])  # across: another way to lay it out
    fully_shard(mostly.norm, mesh=mesh)
    assert placed("Tower.body.weight") == (None, (0, 1))  # on the other dimension, and nothing says that they agree
    del mostly
    parts = Tower()
    parts.roof = nn.Linear(8, 8)
    fully_shard(parts.body, mesh=mesh["shards"])
    fully_shard(parts.roof, mesh=mesh["shards"])
    fully_shard(parts.norm, mesh=mesh)  # it is this one that is laid out by itself
    assert placed("Tower.body.weight") == (None, (1, 3))
    other = Spire()
    fully_shard(other, mesh=init_device_mesh("cpu", (4,)))
    assert flags(found("Spire")["Spire.top.weight"]) & Flag.LOCAL
