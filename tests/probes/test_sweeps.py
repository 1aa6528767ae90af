"""Digests out of turn: what an agent asks of a rank's ledger, and what the rank does about it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.probes.scalars import clean, told
from torch import nn

from diagd.daemon.agent.ledgers import LedgerReader
from diagd.daemon.state.tensors import LedgerNews
from diagd.probes import digest, ledger, sweeps
from diagd.probes.box import ledger as layout
from diagd.probes.box import requests
from diagd.probes.box.layout import Live
from diagd.probes.box.ledger import LedgerWriter
from diagd.probes.box.requests import LATE, Request, Target
from diagd.probes.box.writer import BoxWriter
from diagd.probes.budget import BUDGET
from diagd.probes.state import STATE


class Tensor:
    """A row of the ledger."""

    def __init__(self, number: int, tensor: torch.Tensor | None) -> None:
        self.number, self.name = number, f"Net.{number}"
        self._tensor = tensor

    def tensor(self) -> Any:
        return self._tensor


@pytest.fixture
def writer(recording: BoxWriter, tmp_path: Path) -> Iterator[LedgerWriter]:
    sweeps.SWEEP.__init__()  # type: ignore[misc]
    yield LedgerWriter(tmp_path / "7-1.ledger")
    sweeps.SWEEP.__init__()  # type: ignore[misc]


@pytest.fixture
def reader(writer: LedgerWriter) -> LedgerReader:
    return LedgerReader(writer.path, 0, 7)


def news(reader: LedgerReader) -> LedgerNews:
    found = reader.news()
    assert found is not None
    return found


def parts_of(found: LedgerNews) -> list[tuple[int, ...]]:
    columns = found.part_rows, found.part_steps, found.part_firsts, found.part_stops, found.part_digests
    return list(zip(*columns, strict=True))


def test_parts_are_whole_rows_none_empty_and_all_of_them() -> None:
    assert Target(0, 0, 5, 2).edges() == [0, 2, 5]
    assert Target(0, 3, 6, 64).edges() == [3, 4, 5, 6]
    assert len(Target(0, 0, 4096, 1000).edges()) == requests.MAX_PARTS + 1
    assert Target(0, 4, 4, 64).edges() == []
    assert Target(0, 0, 4, 0).edges() == []


def test_a_request_arrives_whole_and_once(writer: LedgerWriter, reader: LedgerReader) -> None:
    assert writer.request(0) is None
    targets = tuple(Target(row, 1, 2**40, 64) for row in range(requests.MAX_TARGETS))
    asked = Request(3, 120, True, targets)
    reader.ask(asked)
    assert writer.request(0) == asked
    assert writer.request(3) is None
    reader.ask(Request(4, 130))
    assert writer.request(3) == Request(4, 130)


def test_a_request_that_is_just_being_written_is_none(writer: LedgerWriter, reader: LedgerReader) -> None:
    reader.ask(Request(3, 120))
    with writer.path.open("r+b") as file:
        os.pwrite(file.fileno(), bytes(8), layout.REQUEST_AT)
    assert writer.request(0) is None


def test_more_targets_than_have_room_are_refused(writer: LedgerWriter, reader: LedgerReader) -> None:
    with pytest.raises(ValueError, match="at most"):
        reader.ask(Request(1, 9, False, (Target(0, 0, 1, 1),) * (requests.MAX_TARGETS + 1)))
    assert writer.request(0) is None


def test_after_the_step_it_names_everything_is_due_and_parts_are_told_and_then_it_is_answered(
    writer: LedgerWriter, reader: LedgerReader
) -> None:
    tensor = torch.arange(12.0).reshape(6, 2)
    rows = [Tensor(0, tensor), Tensor(1, None), Tensor(2, torch.tensor(1.0))]
    reader.ask(Request(1, 5, True, (Target(0, 0, 6, 3), Target(1, 0, 2, 2), Target(2, 0, 1, 1), Target(0, 4, 9, 2))))
    due = [sweeps.after_step(writer, step, rows) for step in (3, 4, 5)]
    assert due == [False, False, True]
    told = parts_of(news(reader))
    expected = digest.Pending([tensor[0:2], tensor[2:4], tensor[4:6]]).bits()
    assert told == [(0, 5, 2 * n, 2 * n + 2, bits) for n, bits in enumerate(expected)]
    assert not sweeps.after_step(writer, 6, rows, [4, 5])
    assert reader.news() is None  # some of the ledger's own have not arrived
    assert not sweeps.after_step(writer, 7, rows, [6])
    assert (news(reader).answered, sweeps.SWEEP.request) == (1, None)
    assert writer.request(1) is None


def test_with_parts_it_is_told_how_often_their_tensors_were_written_in_place(
    recording: BoxWriter, writer: LedgerWriter, reader: LedgerReader
) -> None:
    once, never = torch.zeros(4, 2).add_(1.0), torch.zeros(4, 2)
    with clean():
        reader.ask(Request(1, 5, False, (Target(0, 0, 4, 2), Target(1, 0, 4, 2))))
        for step in (4, 5):
            sweeps.after_step(writer, step, [Tensor(0, once), Tensor(1, never)])
        assert told(recording).fact(0, "tensor/versions") == (5, '{"": [], "Net.0": 1, "Net.1": 0}')


def test_of_all_tensors_those_that_were_written_as_often_as_hardly_another_one_are_named(
    recording: BoxWriter, writer: LedgerWriter, reader: LedgerReader
) -> None:
    rows = [Tensor(number, torch.zeros(2).add_(1.0)) for number in range(4)]
    rows.append(Tensor(4, torch.zeros(2).add_(1.0).mul_(2.0)))
    with clean():
        reader.ask(Request(1, 5, True))
        for step in (4, 5):
            sweeps.after_step(writer, step, rows)
        assert told(recording).fact(0, "tensor/versions") == (5, '{"": [1], "Net.4": 2}')


@pytest.mark.parametrize("step", [5, 6])
def test_a_rank_that_has_made_the_step_says_so(writer: LedgerWriter, reader: LedgerReader, step: int) -> None:
    reader.ask(Request(1, 5, True))
    assert not sweeps.after_step(writer, step, [])
    found = news(reader)
    assert (found.answered, found.answer) == (1, LATE)


def test_a_step_that_was_not_recorded_is_late_too(writer: LedgerWriter, reader: LedgerReader) -> None:
    reader.ask(Request(1, 5, True))
    sweeps.after_step(writer, 4, [])
    sweeps.after_step(writer, 6, [])
    assert news(reader).answer == LATE


def test_another_ledger_begins_anew(writer: LedgerWriter, reader: LedgerReader, tmp_path: Path) -> None:
    reader.ask(Request(1, 5, True))
    sweeps.after_step(writer, 4, [])
    assert not sweeps.after_step(LedgerWriter(tmp_path / "8-1.ledger"), 5, [])


def test_gradients_of_a_large_model_are_not_kept_alive_for_it(writer: LedgerWriter, reader: LedgerReader) -> None:
    for serial, is_small in enumerate((True, False), 1):
        reader.ask(Request(serial, 10 * serial, True))
        sweeps.after_step(writer, 10 * serial - 2, [], is_small=is_small)
        assert sweeps.SWEEP.takes_gradients(10 * serial) == is_small
        assert sweeps.SWEEP.takes_all(10 * serial)
        assert not sweeps.SWEEP.takes_all(10 * serial + 1)
        sweeps.after_step(writer, 10 * serial + 1, [])


class World:
    """Stands for torch.distributed in a job of two."""

    def is_initialized(self) -> bool:
        return True

    def get_world_size(self) -> int:
        return 2


def test_a_sweep_takes_parameters_and_the_gradients_of_the_same_step_whatever_the_budget_says(
    writer: LedgerWriter, reader: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.distributed", World())
    monkeypatch.setattr(BUDGET, "stride", 1 << 20)
    ledger.LEDGER.__init__()  # type: ignore[misc]
    model = nn.Linear(3, 3)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for step in range(1, 50):
            if step == 40:
                assert ledger.LEDGER.rows.writer is not None
                own = LedgerReader(ledger.LEDGER.rows.writer.path, 0, 1)
                own.ask(Request(1, 43, True))
            ledger._before(optimizer)
            STATE.live[Live.STEP] = step
            ledger._after(optimizer)
        taken = [(int(row), int(step)) for row, step in own._samples[:, 1:3] if step > layout.TURN]
        numbers = {
            row.number
            for row in (*ledger.LEDGER.rows.all, *ledger.LEDGER.gradients.values())
            if row.tensor() is not None
        }
    finally:
        ledger.LEDGER.__init__()  # type: ignore[misc]
    assert {step for _, step in taken} == {43}
    assert {row for row, _ in taken} == numbers
