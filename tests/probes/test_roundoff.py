"""Rows of a table in half precision that come up now and then: whether their updates reach them."""

from collections.abc import Iterator

import pytest
import torch
from tests.probes.scalars import clean, look, step, told
from torch import nn

from diagd.probes import roundoff
from diagd.probes.box.writer import BoxWriter

STEPS = 90


class Table(nn.Module):
    """A table of which each step sees a few rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(120, 8, _weight=torch.full((120, 8), 0.5)).half()
        self.out = nn.Linear(8, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.rows(ids).float())
        return found


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with clean():
        roundoff._watches.clear()
        yield
        roundoff._watches.clear()


def train(model: Table, lr: float) -> None:
    optimizer = torch.optim.SGD(model.rows.parameters(), lr=lr)
    look(model)
    for seed in range(STEPS):
        ids = torch.randint(0, 120, (30,), generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        model(ids).sum().backward()
        roundoff._before(optimizer)
        optimizer.step()
        roundoff._after(optimizer)
        step(model(ids[:0]).sum())  # counts the step


def shares(box: BoxWriter, what: str) -> list[float]:
    found = told(box).series(0, f"roundoff/{what}/Table.rows.weight")
    return found.values.tolist() if found is not None else []


def test_rows_that_come_up_now_and_then_and_never_move_are_told(recording: BoxWriter) -> None:
    train(Table(), 1e-4)
    assert shares(recording, "still")[-1] == 1.0
    assert shares(recording, "lost")[-1] == 1.0


def test_rows_that_move_when_they_come_up_are_not(recording: BoxWriter) -> None:
    train(Table(), 0.1)
    assert not shares(recording, "still")
    assert told(recording).series(0, "roundoff/parameters") is not None
