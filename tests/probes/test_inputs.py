"""When a step's input is looked at, and which call counts as its forward pass."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from diagd.daemon.agent.signals import SignalReader
from diagd.probes import batches, data, groups, inputs, randomness
from diagd.probes.box import signals as layout
from diagd.probes.box.layout import MAX_DIMS, Flag, Live, Op
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.state import STATE

EVAL_FRAME = "torch._dynamo.eval_frame"
Told = dict[str, dict[int, Any]]


@pytest.fixture
def told(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Told]]:
    """What was recorded, by name and step; the process stands for one of two ranks."""
    two = SimpleNamespace(is_initialized=lambda: True, get_world_size=lambda: 2, get_process_group_ranks=lambda g: g)
    monkeypatch.setitem(sys.modules, "torch.distributed", two)
    monkeypatch.setitem(sys.modules, EVAL_FRAME, SimpleNamespace(cached_backends={1: None}))  # as optimizers leave it
    inputs.INPUTS.__init__()  # type: ignore[misc]
    randomness.WATCH.__init__()  # type: ignore[misc]

    def read() -> Told:
        path = recording.path.with_suffix(layout.SUFFIX)
        news = SignalReader(path, 0, 1).news() if path.exists() else None
        found: Told = {}
        if news is not None:
            for name, step, value in zip(news.names, news.steps, news.values, strict=True):
                found.setdefault(news.strings[name], {})[step] = value
            for name, step, text in news.facts:
                found[news.strings[name]] = {step: news.strings[text]}
        return found

    yield read
    inputs._disarm()
    inputs.INPUTS.__init__()  # type: ignore[misc]
    randomness.WATCH.__init__()  # type: ignore[misc]


class DistributedDataParallel(nn.Module):
    """By the name of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1), nn.Dropout(0.0))
        self.process_group = [0, 2, 4]


def probe() -> Probe:
    made = Probe("inputs", 0, False)
    made.switch(True)
    return made


def step(number: int) -> None:
    STATE.live[Live.STEP] = number


def test_the_first_trained_forward_of_a_step_is_its_input(told: Callable[[], Told]) -> None:
    wrapped, first, second = DistributedDataParallel(), torch.ones(2, 3), torch.zeros(2, 3)
    with torch.no_grad():
        inputs._before((wrapped, second), {})
    inputs._before((wrapped, first), {})
    inputs._before((wrapped, second), {})
    wrapped.eval()
    step(1)
    inputs._before((wrapped, first), {})
    wrapped.train()
    inputs._before((wrapped,), {"x": first})
    found = told()
    assert set(found["data/input"]) == {1, 2}
    assert found["data/input"][1] == found["data/input"][2]
    assert found["data/replicas"] == {1: "ddp 0:4:2"}
    assert found["data/dropout"] == {1: "1"}


def test_the_beginning_of_a_forward_pass_is_told_by_its_wrapper(told: Callable[[], Told]) -> None:
    live = STATE.live
    assert live is not None
    live[Live.FORWARD_NS] = 0
    STATE.backward_depth = 1  # as a checkpoint's second forward pass
    inputs._before((DistributedDataParallel(), torch.ones(2, 3)), {})
    STATE.backward_depth = 0
    assert live[Live.FORWARD_NS] == 0
    inputs._before((DistributedDataParallel(), torch.ones(2, 3)), {})
    assert live[Live.FORWARD_NS] > 0


def test_a_batch_that_has_come_begins_it_too(told: Callable[[], Told]) -> None:
    live = STATE.live
    assert live is not None
    live[Live.FORWARD_NS] = 0
    data._after(object(), torch.ones(1))
    assert live[Live.FORWARD_NS] > 0


def test_a_wrapper_of_one_rank_is_as_none(told: Callable[[], Told]) -> None:
    alone = DistributedDataParallel()
    alone.process_group = [1]
    inputs._before((alone, torch.ones(2, 3)), {})
    assert told() == {}
    inputs._arm(probe())
    alone.module(torch.ones(1, 3))
    assert list(told()["data/input"]) == [1]
    assert "data/replicas" not in told()


def test_after_the_first_steps_one_in_four_is_looked_at(told: Callable[[], Told]) -> None:
    wrapped = DistributedDataParallel()
    for number in range(24):
        step(number)
        inputs._before((wrapped, torch.ones(2, 3)), {})
    assert list(told()["data/input"]) == [*range(1, inputs.EARLY_STEPS + 1), 17, 21]


def test_without_a_wrapper_the_first_module_called_after_a_step_is_looked_at_once(told: Callable[[], Told]) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    inputs._arm(probe())
    with torch.no_grad():
        model(torch.zeros(1, 3))
    assert told() == {}
    model(torch.ones(1, 3))
    assert list(told()["data/input"]) == [1]
    assert not torch.nn.modules.module._global_forward_pre_hooks
    inputs._arm(probe())
    assert inputs.INPUTS.armed is None  # this step's input is known
    step(1)
    inputs._arm(probe())
    model(torch.ones(1, 3))
    found = told()["data/input"]
    assert found[1] == found[2]


def test_no_hook_waits_where_models_are_compiled_or_there_is_one_rank(
    told: Callable[[], Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    for frames in (SimpleNamespace(cached_backends={1: None, 2: print}), SimpleNamespace()):
        monkeypatch.setitem(sys.modules, EVAL_FRAME, frames)
        inputs._arm(probe())
        assert inputs.INPUTS.armed is None
    monkeypatch.setitem(sys.modules, EVAL_FRAME, SimpleNamespace(cached_backends={}))
    monkeypatch.setattr(sys.modules["torch.distributed"], "get_world_size", lambda: 1)
    inputs._arm(probe())
    assert inputs.INPUTS.armed is None


@pytest.mark.parametrize(
    ("issued", "text", "moved"),
    [
        ([(Op.ALLREDUCE, 4096), (Op.BARRIER, -1), (Op.ALLGATHER, 2)], "none", "ALLREDUCE"),
        ([(Op.ALLGATHER, 4096), (Op.ALLREDUCE, 1), (Op.SEND, -1)], "ALLGATHER,SEND", "ALLGATHER,SEND"),
        ([(Op.INIT, -1), (Op.BROADCAST, 999), (Op.REDUCE, 8)], "none", "BROADCAST"),
        ([(Op.STORE_SET, -1)], "none", "none"),
    ],
)
def test_what_the_first_steps_exchange_is_told_once(
    recording: BoxWriter, told: Callable[[], Told], issued: list[tuple[Op, int]], text: str, moved: str
) -> None:
    ring = recording.ring()
    assert ring is not None
    for op, numel in issued:
        ring.stamp(ring.template((op, numel), 0, numel, 0, op, 0, 0, 0, 1, 1, -1, 0, 0, 0, (0,) * MAX_DIMS), 1)
    for number in (7, 8, 9):
        step(number)
        inputs._arm(probe())
    assert (told()["data/exchanges"], told()["data/moved"]) == ({9: text}, {9: moved})


@pytest.mark.parametrize(
    ("issued", "text"),
    [
        ([(Op.ALLREDUCE, 4096)], {9: "0:2:2"}),
        ([(Op.ALLREDUCE, 1)], {}),
        ([(Op.ALLREDUCE, 4096), (Op.SEND, 4096)], {}),
    ],
)
def test_over_which_groups_is_averaged_is_told_also_under_a_wrapper(
    recording: BoxWriter, told: Callable[[], Told], issued: list[tuple[Op, int]], text: dict[int, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(inputs.INPUTS, "wrapped", True)
    monkeypatch.setattr(sys.modules["torch.distributed"], "get_world_size", lambda: 4)
    monkeypatch.setitem(groups.TABLE, "replicas", groups.NO_GROUP._replace(number=3, ranks=(0, 2)))
    monkeypatch.setitem(groups.TABLE, "default", groups.NO_GROUP._replace(number=0, ranks=(0, 1, 2, 3)))
    ring = recording.ring()
    assert ring is not None
    for op, numel in [*issued, (Op.ALLREDUCE, 999)]:
        group = 0 if numel == 999 else 3
        key = op, numel, group
        ring.stamp(ring.template(key, 0, numel, group, op, 0, 0, 0, 1, 1, -1, 0, 0, 0, (0,) * MAX_DIMS), 1)
    for number in (7, 8, 9):
        step(number)
        inputs._arm(probe())
    assert told().get("data/averages", {}) == text
    assert "data/exchanges" not in told()


@pytest.mark.parametrize(
    ("op", "numel", "flags", "text"),
    [
        (Op.ALLREDUCE, 4096, Flag.IN_BACKWARD, {9: "0:2:2"}),
        (Op.REDUCE_SCATTER, -1, Flag.IN_BACKWARD, {9: "0:2:2"}),
        (Op.ALLREDUCE, 4096, 0, {}),
        (Op.ALLREDUCE, 2, Flag.IN_BACKWARD, {}),
        (Op.ALLTOALL, 4096, Flag.IN_BACKWARD, {}),  # to and from experts
    ],
)
def test_in_which_groups_backward_passes_exchange_parts_is_told(
    recording: BoxWriter, told: Callable[[], Told], op: Op, numel: int, flags: int, text: dict[int, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys.modules["torch.distributed"], "get_world_size", lambda: 4)
    monkeypatch.setitem(groups.TABLE, "parts", groups.NO_GROUP._replace(number=3, ranks=(0, 2)))
    ring = recording.ring()
    assert ring is not None
    ring.stamp(ring.template((op,), 0, numel, 3, op, int(flags), 0, 0, 1, 1, -1, 0, 0, 0, (0,) * MAX_DIMS), 1)
    for number in (7, 8, 9):
        step(number)
        inputs._arm(probe())
    assert told().get("data/within", {}) == text


def test_what_is_drawn_in_a_step_is_told_apart_from_what_the_loader_draws(told: Callable[[], Told]) -> None:
    torch.manual_seed(1)
    torch.rand(10)

    def end(number: int) -> None:
        step(number)
        randomness._stepped(None)

    end(4)
    torch.rand(700)
    randomness.at_fetch()
    torch.rand(5)
    randomness.at_forward()
    torch.rand(7)
    end(5)
    end(6)
    end(8)
    torch.rand(2000)
    randomness.at_forward()
    end(9)
    end(12)
    torch.manual_seed(5)
    randomness.at_forward()
    end(13)
    end(16)
    torch.rand(3)
    end(17)  # whose forward pass was not seen
    found = told()
    assert found["data/drawn"] == {5: 5, 9: randomness.BLOCK, 13: randomness.RESEEDED, 17: 0}
    assert found["data/drawn_inside"] == {5: 7, 9: 0, 13: 0, 17: randomness.BLOCK}
    assert len(set(found["data/rng"].values())) == 4


class Iterator4:
    """A loader's iterator over two workers, as far as it is asked."""

    _num_workers = 2

    def __init__(self, sampler: Any) -> None:
        self._num_yielded = 0
        self._index_sampler = SimpleNamespace(sampler=sampler)

    def gives(self, *values: float) -> None:
        for value in values:
            self._num_yielded += 1
            batches.fetched(self, torch.full((2,), value))


@pytest.mark.parametrize(
    ("values", "alike"), [([1, 1, 2, 2, 3, 3], 3), ([1, 2, 3, 4, 5, 6], 0), ([1, 1, 1, 1, 1, 1], 1)]
)
def test_workers_that_repeat_each_other_are_counted(told: Callable[[], Told], values: list[float], alike: int) -> None:
    batches._totals.update(groups=0, repeats=0)
    Iterator4(SimpleNamespace()).gives(*values)
    found = told()
    assert list(found["data/worker_groups"].values()) == [3]
    assert list(found["data/worker_repeats"].values()) == [alike]


class DistributedSampler:
    """By the name of torch's."""

    def __init__(self) -> None:
        self.rank, self.num_replicas, self.shuffle, self.epoch = 1, 2, True, 0


def test_a_sampler_that_is_not_told_of_the_next_epoch_is(told: Callable[[], Told]) -> None:
    sampler = DistributedSampler()
    Iterator4(sampler).gives(1, 2)
    sampler.epoch = 1
    Iterator4(sampler).gives(1, 2)
    assert "data/same_order" not in told()
    Iterator4(sampler).gives(1, 2)
    found = told()
    assert found["data/same_order"] == {1: "DistributedSampler, 2 passes with epoch 1"}
    assert found["data/sampler"] == {1: "DistributedSampler rank 1 of 2"}


def test_what_torchs_own_sampler_shuffles_with_is_told(told: Callable[[], Told]) -> None:
    samples = torch.utils.data.TensorDataset(torch.zeros(10))
    sampler: Any = torch.utils.data.DistributedSampler(samples, num_replicas=2, rank=1, seed=7)
    sampler.set_epoch(3)
    Iterator4(sampler).gives(1, 2)
    assert told()["data/shuffle"] == {1: "1 2 10 7 3"}


def test_nothing_is_looked_at_while_the_model_is_evaluated(told: Callable[[], Told]) -> None:
    batches._looked["step"] = -1
    STATE.evaluating = True
    Iterator4(DistributedSampler()).gives(1, 2)
    STATE.evaluating = False
    with torch.no_grad():
        Iterator4(DistributedSampler()).gives(3, 4)
    assert "data/loaded" not in told()
