"""When the ledger's samples are taken: at steps that are the same on every rank, whatever else it has."""

import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.probes.scalars import clean, told
from torch import nn

from diagd.daemon.agent.ledgers import LedgerReader
from diagd.probes import digest, dtypes, gradients, inventory, ledger, registered
from diagd.probes.box.layout import Live
from diagd.probes.box.ledger import SUFFIX, Number
from diagd.probes.box.writer import BoxWriter
from diagd.probes.budget import BUDGET
from diagd.probes.guard import Probe
from diagd.probes.ledger_rows import FROZEN_TURNS, TURN, Row
from diagd.probes.placement import Placement
from diagd.probes.state import STATE


class World:
    """Stands for torch.distributed in a job of two."""

    size = 2

    def is_initialized(self) -> bool:
        return True

    def get_world_size(self) -> int:
        return self.size


@pytest.fixture
def world(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    monkeypatch.setitem(sys.modules, "torch.distributed", world)
    ledger.LEDGER.__init__()  # type: ignore[misc]
    yield world
    ledger.LEDGER.__init__()  # type: ignore[misc]


class Shed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wall = nn.Linear(4, 4)
        self.roof = nn.Linear(4, 4).requires_grad_(False)


def made() -> Any:
    return torch.optim.SGD([torch.ones(1)], lr=0.1)


def train(model: nn.Module, steps: int, since: int = 0) -> dict[str, list[int]]:
    """The steps after which each tensor was sampled."""
    optimizer: Any = torch.optim.SGD(model.wall.parameters(), lr=0.1)  # type: ignore[union-attr]
    mine = {id(module) for module in model.modules()}
    survey = inventory.survey

    def mine_alone(stepping: Any = None) -> inventory.Survey:
        return inventory.Survey([found for found in survey(stepping).found if id(found.module) in mine], [])

    try:
        inventory.survey = mine_alone
        for step in range(since + 1, steps + 1):
            ledger._before(optimizer)
            STATE.live[Live.STEP] = step
            ledger._after(optimizer)
    finally:
        inventory.survey = survey
    writer = ledger.LEDGER.rows.writer
    assert writer is not None
    news = LedgerReader(writer.path, 0, 1)
    told = news._samples[: news._number(Number.SAMPLES)]
    rows = {row.name.removeprefix("Shed.wall.").replace("Shed.roof.", "frozen "): row for row in ledger.LEDGER.rows.all}
    rows |= {f"gradient {row.name.removeprefix('Shed.wall.')}": row for row in ledger.LEDGER.gradients.values()}
    return {name: [int(s[2]) for s in told if s[1] == row.number] for name, row in rows.items()}


@pytest.mark.usefixtures("world")
def test_all_are_taken_at_first_then_each_once_in_a_turn_and_frozen_ones_seldom() -> None:
    seen = train(Shed(), 3 * TURN * FROZEN_TURNS)
    assert not any(seen[f"gradient {name}"] for name in ("weight", "bias"))  # there is none
    assert all(seen[name][:3] == [0, 1, 2] for name in ("weight", "bias", "frozen weight"))
    weight = seen["weight"][3:]
    assert {later - earlier for earlier, later in pairwise(weight)} == {TURN}
    assert weight[0] % TURN == zlib.crc32(b"0 Shed.wall.weight") % TURN
    assert len(seen["frozen weight"]) in (5, 6)


@pytest.mark.usefixtures("world")
def test_what_an_optimizer_has_loaded_is_taken_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model, survey = Shed(), inventory.survey
    optimizer: Any = torch.optim.AdamW(model.wall.parameters())
    for parameter in model.wall.parameters():
        optimizer.state[parameter] = {"step": torch.tensor(7.0), "exp_avg": torch.ones_like(parameter)}
    mine = {id(module) for module in model.modules()}

    def replicas(stepping: Any = None) -> inventory.Survey:
        found = [found for found in survey(stepping).found if id(found.module) in mine]
        return inventory.Survey([one._replace(placement=Placement("ddp", (0, 1))) for one in found], [])

    monkeypatch.setattr(inventory, "survey", replicas)
    ledger._before(optimizer)
    writer = ledger.LEDGER.rows.writer
    assert writer is not None
    news = LedgerReader(writer.path, 0, 1)
    taken = {(int(s[1]), int(s[2])) for s in news._samples[: news._number(Number.SAMPLES)]}
    kept = {row.name.removeprefix("Shed.wall."): row.number for row in ledger.LEDGER.rows.all}
    assert {"weight.step", "weight.exp_avg", "bias.exp_avg"} <= kept.keys()
    assert {(number, 0) for number in kept.values()} <= taken


def test_a_buffer_that_is_cast_is_told_once_with_its_types(recording: BoxWriter) -> None:
    with clean():
        held = {"tensor": torch.zeros(4)}
        dtypes._cast.clear()
        row = Row(0, "Net.inv_freq", lambda: held["tensor"], (4,), False, dtype=torch.float32)
        assert row.tensor() is held["tensor"]
        assert dtypes._cast == []
        held["tensor"] = torch.zeros(4, dtype=torch.bfloat16)
        assert [row.tensor() is held["tensor"] for _ in range(2)] == [True, True]
        assert told(recording).facts(0)["dtypes/recast"][1] == "float32\tbfloat16\tNet.inv_freq"
        assert dtypes._cast == ["Net.inv_freq"]


def within(model: nn.Module, steps: int, idle_at: int = 0) -> None:
    """Train with an optimizer for each parameter, inside the passes; one of them is left out at one step."""
    optimizers: list[Any] = [torch.optim.SGD([parameter], lr=0.1) for parameter in model.wall.parameters()]  # type: ignore[union-attr]
    due = 1
    STATE.live[Live.OPTIMIZER_STEPS] = 0
    for step in range(1, steps):
        STATE.backward_depth = 1
        for optimizer in optimizers:
            ledger._before(optimizer)
        STATE.live[Live.STEP] = step
        STATE.live[Live.OPTIMIZER_STEPS] += len(optimizers) - (step == idle_at)
        for optimizer in optimizers:
            ledger._after(optimizer)
        STATE.backward_depth = 0
        if step + 1 >= due:
            ledger._passed(None)
            due = ledger._following(step + 1)


@pytest.mark.usefixtures("world")
def test_where_optimizers_step_inside_backward_passes_tensors_are_taken_after_them() -> None:
    model = Shed()
    within(model, 3 * TURN)
    writer = ledger.LEDGER.rows.writer
    assert writer is not None
    told = LedgerReader(writer.path, 0, 1)
    (weight,) = (row for row in ledger.LEDGER.rows.all if row.name == "Shed.wall.weight")
    taken = [int(s[2]) for s in told._samples[: told._number(Number.SAMPLES)] if s[1] == weight.number]
    slot = zlib.crc32(b"0 Shed.wall.weight") % TURN
    assert taken[:3] == [1, 2, 3]
    assert [step % TURN for step in taken[3:]] == [slot] * (len(taken) - 3)
    assert len(taken) >= 5
    assert not ledger.LEDGER.given


@pytest.mark.usefixtures("world")
def test_where_one_of_them_does_not_step_in_a_pass_ranks_are_no_longer_compared() -> None:
    model = Shed()
    within(model, 3 * TURN, idle_at=10)
    assert ledger.LEDGER.off
    assert any("not all optimizers" in note for note in STATE.notes)


@pytest.mark.usefixtures("world")
def test_gradients_are_taken_in_the_steps_after_which_their_parameters_are() -> None:
    model = Shed()
    for parameter in model.wall.parameters():
        parameter.grad = torch.ones_like(parameter)
    seen = train(model, 3 * TURN)
    assert seen["gradient weight"] == seen["weight"][1:]
    assert seen["gradient bias"] == seen["bias"][1:]
    assert "gradient frozen weight" not in seen


@pytest.mark.usefixtures("world")
def test_where_they_cost_too_much_they_are_taken_in_fewer_turns_all_of_which_a_cheaper_rank_takes_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, model = 48 * TURN, Shed()
    for parameter in model.wall.parameters():
        parameter.grad = torch.ones_like(parameter)
    seen = []
    for stride in (4, 2, 1):
        monkeypatch.setattr(BUDGET, "stride", stride)
        ledger.LEDGER.__init__()  # type: ignore[misc]
        STATE.live[Live.STEP] = -1
        seen.append({name: set(taken) for name, taken in train(model, steps).items()})
        STATE.box.path.with_suffix(SUFFIX).unlink()  # type: ignore[union-attr]
    for rarer, often in pairwise(seen):
        assert all(rarer[name] <= often[name] for name in often)
    assert [len(some["weight"]) for some in seen] == [3 + 12, 3 + 24, 3 + 48]
    assert len(seen[0]["frozen weight"]) > 3
    assert all(some["gradient bias"] == some["bias"] - {0} for some in seen)


@pytest.mark.usefixtures("world")
def test_of_several_steps_of_an_optimizer_in_a_training_step_the_first_counts() -> None:
    model = Shed()
    given = gradients.Given(
        torch.optim.SGD(model.wall.parameters()), {id(model.wall.bias): Row(0, "a", int, (), owned=True)}
    )
    assert len(given.due(1, early=True)) == 1
    assert given.due(1, early=True) == []
    place = gradients.slot("a")
    assert [step for step in range(2, 100) if given.due(step, early=False)] == list(range(place or 32, 100, TURN))


def test_a_gradient_that_is_still_to_be_summed_over_ranks_is_not_taken() -> None:
    model = nn.Linear(2, 2)
    read = gradients.reader(model, "weight")
    assert read() is None
    model.weight.grad = torch.ones(2, 2)
    held = read()
    assert held is model.weight.grad
    placement = SimpleNamespace(is_partial=lambda: True)
    model.weight.grad._spec = SimpleNamespace(placements=(placement,))
    assert read() is None


@pytest.mark.usefixtures("world")
def test_a_tensor_that_is_gone_is_no_longer_taken() -> None:
    model = Shed()
    model.wall.register_buffer("mark", torch.ones(3))
    optimizer: Any = torch.optim.SGD(model.wall.parameters(), lr=0.1)
    ledger._before(optimizer)
    del model, optimizer
    ledger._take(ledger.LEDGER.rows.all, 1)  # the modules have gone, and nothing is raised


def test_where_there_is_nobody_to_compare_with_tensors_are_described_and_not_digested(world: World) -> None:
    world.size = 1
    seen = train(Shed(), 40)
    assert set(seen) == {"weight", "bias", "frozen weight", "frozen bias"}
    assert not any(seen.values())


@pytest.mark.usefixtures("world")
def test_without_room_for_the_file_the_rank_says_so_and_goes_on() -> None:
    box = STATE.box
    assert box is not None
    box.path.with_suffix(".ledger").touch()  # as no file can be made there
    ledger._before(made())
    assert any("ledger" in note for note in STATE.notes)
    ledger._after(made())


@pytest.mark.usefixtures("world")
def test_a_model_that_is_built_anew_is_followed_under_its_rows_and_taken_whole_again() -> None:
    first = Shed()
    old = train(first, 40)
    rows = len(ledger.LEDGER.rows.all)
    del first
    STATE.live[Live.STEP] = 40
    second = Shed()
    seen = train(second, 44, since=40)
    assert len(ledger.LEDGER.rows.all) == rows
    assert [step for step in seen["weight"] if step > 40][:2] == [41, 42]
    assert seen["weight"][: len(old["weight"])] == old["weight"]


@pytest.mark.usefixtures("world")
def test_a_tensor_that_cannot_be_read_is_counted_once_however_often_models_are_looked_for() -> None:
    model = Shed()
    model.wall.register_buffer("ghost", torch.empty(2, device="meta"))
    model.wall.register_buffer("nothing", torch.empty(0))  # of which there is nothing to compare
    train(model, 40)
    STATE.live[Live.STEP] = 40
    train(model, 44, since=40)
    assert ledger.LEDGER.looks == 1
    writer = ledger.LEDGER.rows.writer
    assert writer is not None
    assert LedgerReader(writer.path, 0, 1)._number(Number.LEFT_OUT) == 1


@pytest.mark.usefixtures("world")
def test_optimizers_without_end_are_not_looked_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(stepping: Any) -> inventory.Survey:
        looks.append(STATE.live[Live.STEP])
        return inventory.Survey([], [])

    monkeypatch.setattr(inventory, "survey", look)
    for step in range(1000):
        STATE.live[Live.STEP] = step
        ledger._before(made())
    assert looks == [0, 32, 96, 224, 480, 992]


@pytest.fixture
def modules() -> Iterator[list[int]]:
    """Registrations are watched; each first one of something new."""
    woken: list[int] = []
    registered.begin(Probe("ledger", 0, True), torch.nn.modules.module, lambda: woken.append(1))
    yield woken
    registered.end()


def test_what_a_module_is_given_anew_is_noted_and_a_new_value_of_what_it_has_is_not(modules: list[int]) -> None:
    shed = Shed()
    assert (registered.REGISTERED.anew, modules) == (True, [1])
    changes: tuple[tuple[Callable[[], Any], bool], ...] = (
        (lambda: setattr(shed, "height", 3.0), False),
        (lambda: shed.register_buffer("worn", torch.zeros(2)), True),
        (lambda: setattr(shed, "worn", torch.ones(2)), False),
        (lambda: shed.register_buffer("none", None), False),
        (lambda: setattr(shed, "door", nn.Parameter(torch.zeros(2))), True),
        (lambda: setattr(shed, "door", nn.Parameter(torch.ones(2))), False),
        (lambda: shed.add_module("shelf", shed.wall), True),
    )
    for change, noted in changes:
        registered.REGISTERED.anew = False
        change()
        assert registered.REGISTERED.anew is noted
    registered.end()
    shed.register_buffer("more", torch.zeros(2))
    assert not registered.REGISTERED.anew


@pytest.mark.usefixtures("world", "modules")
def test_a_part_that_thaws_in_the_midst_of_a_run_is_followed_as_one_that_trains() -> None:
    model = Shed()
    model.wall.weight.requires_grad = False
    optimizer: Any = torch.optim.SGD([model.wall.bias], lr=0.1)
    for step in range(1, 60):
        if step == 40:
            model.wall.weight.requires_grad = True
            optimizer.add_param_group({"params": [model.wall.weight]})
            registered.REGISTERED.note()  # as the hook on that method does
        ledger._before(optimizer)
        STATE.live[Live.STEP] = step
        ledger._after(optimizer)
    (row,) = [row for row in ledger.LEDGER.rows.all if row.name == "Shed.wall.weight"]
    assert row.owned
    assert "Shed.wall.weight" in {one.name for one in ledger.LEDGER.given[id(optimizer)].rows}
    assert all(
        one.name != row.name
        for step in range(TURN * FROZEN_TURNS)
        for one in ledger.LEDGER.rows.due(step)
        if one is not row
    )


@pytest.mark.usefixtures("world")
def test_what_no_wrapper_makes_the_same_is_read_as_the_next_step_finds_it() -> None:
    model = Shed()
    optimizer: Any = torch.optim.SGD(model.wall.parameters(), lr=0.1)
    for step in (1, 2, 3):
        ledger._before(optimizer)
        STATE.live[Live.STEP] = step
        ledger._after(optimizer)
        model.wall.weight.data.fill_(step)  # as what other ranks have made of it
    writer = ledger.LEDGER.rows.writer
    assert writer is not None
    (row,) = (one for one in ledger.LEDGER.rows.all if one.name == "Shed.wall.weight")
    reader = LedgerReader(writer.path, 0, 1)
    told = {int(s[2]): int(s[3]) for s in reader._samples[: reader._number(Number.SAMPLES)] if s[1] == row.number}
    assert set(told) == {0, 1, 2}  # that of the last is read when there is a next one
    for step in (1, 2):
        assert told[step] == digest.Pending([torch.full_like(model.wall.weight, step)]).bits()[0]


@pytest.mark.usefixtures("world", "modules")
def test_a_part_that_is_added_in_the_midst_of_a_run_is_followed() -> None:
    model = Shed()
    optimizer: Any = torch.optim.SGD(model.wall.parameters(), lr=0.1)
    for step in range(1, 60):
        if step == 40:
            model.wall.register_buffer("mask", torch.ones(4, 4))
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
            model.wall.extra = optimizer.param_groups[1]["params"][0]
        ledger._before(optimizer)
        STATE.live[Live.STEP] = step
        ledger._after(optimizer)
    names = {row.name for row in ledger.LEDGER.rows.all}
    assert {"Shed.wall.mask", "Shed.wall.extra"} <= names
    assert "Shed.wall.extra" in {row.name for row in ledger.LEDGER.given[id(optimizer)].rows}
    assert (ledger.LEDGER.looks, ledger.LEDGER.looked_at) == (1, 39)
    writer = ledger.LEDGER.rows.writer
    assert writer is not None
    told = LedgerReader(writer.path, 0, 1)
    (extra,) = (row.number for row in ledger.LEDGER.rows.all if row.name == "Shed.wall.extra")
    taken = [int(s[2]) for s in told._samples[: told._number(Number.SAMPLES)] if s[1] == extra]
    assert taken[:3] == [39, 40, 41]  # before its first step as well: what it begins with
    model.wall.register_buffer("later", torch.ones(4))  # too early to look again, which is then waited for
    assert ledger._following(59) <= 39 + 64 + 1
    ledger.LEDGER.alone, ledger.LEDGER.late = True, ([], 0)  # where it waits for nothing else
    assert ledger._following(59) == 39 + 64 + 1


@pytest.mark.usefixtures("world")
def test_nothing_more_is_taken_once_ranks_may_make_different_numbers_of_steps() -> None:
    class Join:
        def __enter__(self) -> None:
            pass

    probe = Probe("ledger", 0, always=True)
    module = SimpleNamespace(__name__="torch.distributed.algorithms.join", Join=Join)
    model = Shed()
    train(model, 2)
    writer = ledger.LEDGER.rows.writer
    assert writer is not None
    taken = LedgerReader(writer.path, 0, 1)._number(Number.SAMPLES)
    ledger.install(probe, module)
    Join().__enter__()
    for step in range(3, 3 + TURN):
        STATE.live[Live.STEP] = step
        ledger._after(made())
    ledger.remove()
    assert LedgerReader(writer.path, 0, 1)._number(Number.SAMPLES) == taken > 0
    assert any("Join" in note for note in STATE.notes)
