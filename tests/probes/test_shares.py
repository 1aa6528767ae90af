"""What of a whole tensor lies on a rank: by each of the ways in which torch splits one, the parts add up to it.

Each rank of a world is this process in turn, with a backend that sends nothing.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, debug, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from diagd.cuda_ext import adding
from diagd.probes import holdings, inventory, shares
from diagd.probes.box.ledger import Kind
from diagd.probes.holdings import Holding, Unread
from diagd.probes.placement import Placement
from diagd.probes.shares import Share, Unknown


@contextmanager
def world(size: int, rank: int) -> Iterator[None]:
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        for clear in (debug._clear_python_sharding_prop_cache, debug._clear_fast_path_sharding_prop_cache):
            clear()  # type: ignore[no-untyped-call] # they hand out the meshes that they have seen, as seen from the rank before


@pytest.fixture(autouse=True)
def _gone() -> Iterator[None]:
    """Other tests look at all models that there are, and the groups of these are no more."""
    yield
    gc.collect()


def added(told: dict[str, dict[str, tuple[Share, int]]], name: str) -> int:
    """The total over the distinct regions of a tensor, which are all of it."""
    parts = told[name].values()
    assert sum(share.numel for share, _ in parts) == prod(next(iter(parts))[0].shape)
    return sum(total for _, total in parts) % 2**64


def expected(tensor: torch.Tensor) -> int:
    return adding.begin([[adding.run_at(tensor, 0)]]).result()[0]


def note(told: dict[str, dict[str, tuple[Share, int]]], share: Share, local: torch.Tensor) -> None:
    """Replicas of one part hold the same."""
    total = adding.begin([share.blocks(local, adding)]).result()[0]
    known = told.setdefault(share.name, {}).setdefault(share.region, (share, total))
    assert known[1] == total


@pytest.mark.parametrize(
    ("mesh", "placements", "shape"),
    [
        ((4,), (Shard(0),), (10, 3)),  # uneven, and the last rank has fewer
        ((4,), (Shard(0),), (2, 3)),  # some ranks have nothing
        ((3,), (Shard(1),), (5, 7, 2)),
        ((2, 2), (Shard(0), Shard(1)), (5, 7)),
        ((2, 2), (Shard(0), Shard(0)), (7, 3)),
        ((2, 2), (Replicate(), Shard(1)), (3, 9)),
        ((2, 3), (Shard(2), Replicate()), (3, 4, 5)),
        ((4,), (Replicate(),), (3, 3)),
    ],
    ids=str,
)
def test_shares_of_dtensors_add_up(mesh: tuple[int, ...], placements: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    whole = torch.randn(shape)
    told: dict[str, dict[str, tuple[Share, int]]] = {}
    for rank in range(prod(mesh)):
        with world(prod(mesh), rank):
            tensor = distribute_tensor(whole, init_device_mesh("cpu", mesh), placements, src_data_rank=None)
            share = shares.of_dtensor("w", tensor)
            assert share.shape == shape
            if share.numel:
                note(told, share, tensor._local_tensor)
    assert added(told, "w") == expected(whole)


@pytest.mark.parametrize("length", [16, 9, 13])
def test_a_shard_that_lies_in_several_runs_is_known(length: int) -> None:
    strided = pytest.importorskip("torch.distributed.tensor.placement_types")._StridedShard
    whole, told = torch.randn(length, 2), dict[str, dict[str, tuple[Share, int]]]()
    for rank in range(2):
        with world(2, rank):
            mesh = init_device_mesh("cpu", (2,))
            tensor = distribute_tensor(whole, mesh, (strided(0, split_factor=3),), src_data_rank=None)
            note(told, shares.of_dtensor("w", tensor), tensor._local_tensor)
    assert added(told, "w") == expected(whole)
    assert any("+" in region for region in told["w"])


def test_what_is_to_be_summed_first_or_is_of_another_shape_is_not_known() -> None:
    with world(2, 0):
        mesh = init_device_mesh("cpu", (2,))
        with pytest.raises(Unknown, match="summed"):
            shares.of_dtensor("w", DTensor.from_local(torch.ones(2), mesh, (Partial(),), run_check=False))
        odd = DTensor.from_local(torch.ones(3), mesh, (Shard(0),), run_check=False, shape=torch.Size([10]), stride=(1,))
        with pytest.raises(Unknown, match="should"):
            shares.of_dtensor("w", odd)


class Net(nn.Module):
    """With parameters of sizes that no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 10, bias=False)
        self.inner = nn.Sequential(nn.Linear(10, 7), nn.Linear(7, 4))
        self.register_buffer("seen", torch.arange(3.0))


def wrapped_in_two_dimensions(net: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    plan = {"first": ColwiseParallel(), "inner.0": RowwiseParallel()}
    parallelize_module(net, mesh["tp"], plan, src_data_rank=None)
    return split(net, mesh["dp"])


def split(net: nn.Module, mesh: DeviceMesh) -> nn.Module:
    fully_shard(net, mesh=mesh)
    return net


def flat(use_orig_params: bool, strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD) -> Callable[[Any], Any]:
    def wrap(net: Any) -> Any:
        net.inner = FullyShardedDataParallel(net.inner, use_orig_params=use_orig_params, device_id=torch.device("cpu"),
                                             sharding_strategy=strategy)  # fmt: skip
        return FullyShardedDataParallel(net, use_orig_params=use_orig_params, device_id=torch.device("cpu"),
                                        sharding_strategy=strategy)  # fmt: skip

    return wrap


WRAPPERS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "plain": (2, lambda net: net),
    "fsdp2": (3, lambda net: split(net, init_device_mesh("cpu", (3,)))),
    "fsdp2 over tp": (4, wrapped_in_two_dimensions),
    "fsdp": (3, flat(True)),
    "fsdp, flat": (3, flat(False)),
    "fsdp, not split": (2, flat(True, ShardingStrategy.NO_SHARD)),
    "fsdp, flat, not split": (2, flat(False, ShardingStrategy.NO_SHARD)),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_parameters_buffers_and_states_add_up_under_each_wrapper(wrapper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, wrap = WRAPPERS[wrapper]
    told: dict[str, dict[str, tuple[Share, int]]] = {}
    for rank in range(ranks):
        with world(ranks, rank):
            torch.manual_seed(3)
            net = Net()
            plain = {f"Net.{name}": tensor.detach().clone() for name, tensor in net.state_dict().items()}
            net = wrap(net)
            optimizer = torch.optim.Adam(net.parameters())
            for parameter in net.parameters():
                optimizer.state[parameter] = {"step": torch.tensor(3.0), "exp_avg": parameter.detach().clone()}
            monkeypatch.setattr(inventory, "_objects", lambda net=net, optimizer=optimizer: (
                list(net.modules()), [optimizer]))  # fmt: skip
            for one in holdings.holdings([optimizer]):
                assert not isinstance(one, Unread), one
                note(told, one.share, one.read())
    for name, tensor in plain.items():
        assert added(told, name) == expected(tensor), name
        if name != "Net.seen":
            assert added(told, f"{name}.exp_avg") == expected(tensor), name
            assert set(told[f"{name}.step"]) == {shares.WHOLE}


def test_what_fsdp_has_laid_out_otherwise_is_not_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with world(2, 0):
        net = Net()
        net.first.weight.data = net.first.weight.data.t().contiguous().t()
        wrapped = flat(True)(net)
        monkeypatch.setattr(inventory, "_objects", lambda: (list(wrapped.modules()), []))
        found = list(holdings.holdings([]))
    assert [one.name for one in found if isinstance(one, Unread)] == ["Net.first.weight"]
    assert any(isinstance(one, Holding) for one in found)


@pytest.mark.parametrize("rows", [0, 3])
def test_of_a_parameter_that_zero_3_keeps_elsewhere_it_is_said_that_its_part_is_not_known(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Module()
    model.w = nn.Parameter(torch.zeros(rows))  # a placeholder, or gathered at this time
    found = inventory.Found("Net.w", Kind.PARAMETER, model, "w", Placement("zero 3", local=True), 0)
    monkeypatch.setattr(inventory, "survey", lambda: inventory.Survey([found], []))
    (one,) = holdings.holdings([])
    assert isinstance(one, Unread)
    assert (one.kind, one.name) == (Kind.PARAMETER, "Net.w")
    assert "ZeRO-3" in one.why
