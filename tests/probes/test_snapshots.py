"""What all tensors hold after one step, when somebody asks for it, and nothing when nobody does."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.probes.test_ledger import World
from torch import nn

from diagd.cuda_ext import adding
from diagd.daemon.agent.ledgers import LedgerReader
from diagd.probes import digest, heartbeat, holdings, inventory, ledger, snapshots, sweeps, turns
from diagd.probes.box import sums as layout
from diagd.probes.box.layout import Live
from diagd.probes.box.ledger import Number
from diagd.probes.box.requests import AT_START, LATE, Request
from diagd.probes.box.writer import BoxWriter
from diagd.probes.settings import Settings
from diagd.probes.state import STATE


class Shed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wall = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))


class Job:
    """A training of a model of this process; `world` ranks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: int) -> None:
        torch_distributed = World()
        torch_distributed.size = world
        monkeypatch.setitem(sys.modules, "torch.distributed", torch_distributed)
        ledger.LEDGER.__init__()  # type: ignore[misc]
        sweeps.SWEEP.__init__()  # type: ignore[misc]
        self.model = Shed()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        monkeypatch.setattr(inventory, "_objects", lambda: (list(self.model.modules()), [self.optimizer]))
        monkeypatch.setattr(sweeps, "take_snapshot", ledger._take_snapshot)
        self.at = 0

    def step(self) -> dict[str, torch.Tensor]:
        """What there is after it, without what averages weights by hand does between steps."""
        ledger._before(self.optimizer)
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        torch.optim.Adam.step.__wrapped__(self.optimizer)  # type: ignore[attr-defined]
        self.at += 1
        STATE.live[Live.STEP] = self.at
        ledger._after(self.optimizer)
        return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def reader(self) -> LedgerReader:
        assert ledger.LEDGER.rows.writer is not None
        return LedgerReader(ledger.LEDGER.rows.writer.path, 0, 1)

    def told(self) -> dict[str, Any]:
        """What stands in the file, totals by name."""
        assert STATE.box is not None
        found = json.loads(STATE.box.path.with_suffix(layout.SUFFIX).read_text())
        assert isinstance(found, dict)
        return found | {"tensors": {one[1]: one for one in found["tensors"]}}

    def is_there(self) -> bool:
        assert STATE.box is not None
        return STATE.box.path.with_suffix(layout.SUFFIX).exists()


@pytest.fixture
def _clean(recording: BoxWriter) -> Iterator[None]:
    yield
    ledger.LEDGER.__init__()  # type: ignore[misc]
    sweeps.SWEEP.__init__()  # type: ignore[misc]


def total(tensor: torch.Tensor) -> str:
    return f"{adding.begin([[adding.run_at(tensor, 0)]]).result()[0]:016x}"


pytestmark = pytest.mark.usefixtures("_clean")


def test_a_rank_alone_is_woken_for_a_request_and_tells_all_tensors_after_that_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, 1)
    woken: list[int] = []
    monkeypatch.setattr(ledger, "_wake", lambda: woken.append(job.at))
    for _ in range(3):
        job.step()
    assert ledger._following(3) == turns.NEVER
    ledger._look_for_request()
    assert woken == []
    reader = job.reader()
    reader.ask(Request(7, 6, everything=True, sums=True))
    ledger._look_for_request()
    assert woken == [3]
    job.step()  # as it was woken
    ledger._look_for_request()
    assert (woken, ledger._following(4)) == ([3], 6)
    job.step()
    assert not job.is_there()
    held = job.step()
    assert (reader._number(Number.ANSWERED), reader._number(Number.ANSWER)) == (7, 6)
    told = job.told()
    assert (told["serial"], told["step"], told["error"], told["unknown"]) == (7, 6, "", [])
    assert told["tensors"]["Shed.wall.weight"] == [
        "parameter", "Shed.wall.weight", "float32", 4, [3, 4], "", 12, total(held["wall.weight"]), True,
    ]  # fmt: skip
    assert told["tensors"]["Shed.seen"][2:] == ["int64", 8, [2], "", 2, total(held["seen"]), False]
    moment = job.optimizer.state[job.model.wall.bias]["exp_avg"]
    assert told["tensors"]["Shed.wall.bias.exp_avg"][7] == total(moment)
    assert told["tensors"]["Shed.wall.bias.step"][4:8] == [[], "", 1, total(torch.tensor(6.0))]
    assert len(told["tensors"]) == 3 + 2 * 3
    job.step()
    assert ledger._following(7) == turns.NEVER
    assert job.told() == told


def test_what_no_wrapper_makes_the_same_is_read_as_the_next_step_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, 2)
    job.step()
    reader = job.reader()
    reader.ask(Request(1, 4, everything=True, sums=True))
    for _ in range(3):
        held = job.step()
    assert not job.is_there()
    with torch.no_grad():
        job.model.wall.weight.fill_(7.0)  # as what the ranks have averaged
        job.model.get_buffer("seen").fill_(9)  # as the next forward pass does
    job.step()
    assert reader._number(Number.ANSWERED) == 1
    told = job.told()["tensors"]
    assert told["Shed.wall.weight"][7] == total(torch.full((3, 4), 7.0))
    assert told["Shed.seen"][7] == total(held["seen"])
    assert not sweeps.SWEEP.snapshot


def test_nothing_is_looked_at_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("nobody has asked")

    for world in (1, 2):
        job = Job(monkeypatch, world)
        monkeypatch.setattr(digest, "load_adding", never)
        monkeypatch.setattr(snapshots, "holdings", never)
        for _ in range(5):
            job.step()
        job.reader().ask(Request(1, 8, everything=True))
        for _ in range(5):
            job.step()
        assert not job.is_there()
        assert STATE.box is not None
        STATE.box.path.with_suffix(".ledger").unlink()
        STATE.live[Live.STEP] = -1


@pytest.mark.parametrize("world", [1, 2])
def test_what_a_rank_begins_with_is_told_where_it_was_started_so(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, world)
    monkeypatch.setattr(STATE, "settings", Settings(ledger_at_start=True))
    for parameter in job.model.parameters():  # as loaded
        job.optimizer.state[parameter] = {"step": torch.tensor(9.0), "exp_avg": parameter.detach().clone(),
                                          "exp_avg_sq": parameter.detach().clone().square()}  # fmt: skip
    held = {name: total(tensor) for name, tensor in job.model.state_dict().items()}
    job.step()
    told = job.told()
    assert (told["serial"], told["step"], told["error"]) == (AT_START, 0, "")
    tensors = told["tensors"]
    assert {name: tensors[f"Shed.{name}"][7] for name in held} == held
    assert tensors["Shed.wall.bias.exp_avg"][7] == held["wall.bias"]
    job.step()
    reader = job.reader()
    assert (reader._number(Number.ANSWERED), reader._number(Number.ANSWER)) == (AT_START, 0)
    reader.ask(Request(5, 9, everything=True, sums=True))
    for _ in range(8):
        job.step()
    assert job.told()["step"] == 9


def test_a_step_that_is_over_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, 1)
    job.step()
    reader = job.reader()
    reader.ask(Request(1, 1, everything=True, sums=True))
    job.step()
    assert (reader._number(Number.ANSWER), job.is_there()) == (LATE, False)


def test_what_fails_is_told_in_place_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(optimizers: Any) -> Any:
        raise RuntimeError("CUDA out of memory")

    job = Job(monkeypatch, 1)
    job.step()
    reader = job.reader()
    reader.ask(Request(1, 3, everything=True, sums=True))
    monkeypatch.setattr(snapshots, "holdings", fail)
    for _ in range(2):
        job.step()
    told = job.told()
    assert (told["error"], told["tensors"]) == ("RuntimeError: CUDA out of memory", {})
    assert reader._number(Number.ANSWERED) == 1


def test_where_the_file_has_no_room_there_is_none_and_the_job_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    job = Job(monkeypatch, 1)
    job.step()
    reader = job.reader()
    reader.ask(Request(1, 3, everything=True, sums=True))
    monkeypatch.setattr(layout, "write", full)
    for _ in range(2):
        job.step()
    assert (reader._number(Number.ANSWERED), job.is_there()) == (1, False)
    assert any("No space" in note for note in STATE.notes)


def test_a_tensor_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, 1)
    job.model.register_buffer("ghost", torch.empty(2, device="meta"))
    found = [one for one in holdings.holdings([]) if isinstance(one, holdings.Unread)]
    assert [(one.name, one.why) for one in found] == [("Shed.ghost", "its memory is not to be read where it lies")]


def test_requests_are_looked_for_in_the_thread_of_diagds(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(heartbeat, "LOOKS", [lambda: looked.append(1)])
    heartbeat._tick()
    assert looked == [1]
