"""Which rows of a table the steps write, as the fact tells it."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from tests.probes.scalars import clean, told
from torch import nn

from diagd.probes import inventory, own_rows, turns
from diagd.probes.box.layout import Live
from diagd.probes.box.ledger import Kind
from diagd.probes.box.writer import BoxWriter
from diagd.probes.named import NAMED
from diagd.probes.placement import PLAIN
from diagd.probes.signals import SIGNALS

ROWS = 400


class Memory(nn.Module):
    history: torch.Tensor

    def __init__(self, dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (ROWS, 4)) -> None:
        super().__init__()
        self.register_buffer("history", torch.full(shape, 0.25).to(dtype))


@pytest.fixture(autouse=True)
def _clean(recording: BoxWriter) -> Iterator[None]:
    with clean():
        own_rows.OWN_ROWS.__init__()  # type: ignore[misc]
        yield
        own_rows.OWN_ROWS.__init__()  # type: ignore[misc]


def looked_at(recording: BoxWriter, memory: Memory, write: Callable[[torch.Tensor, int], None]) -> str | None:
    """What is told after steps that each write."""
    NAMED.follow([inventory.Found("Net.history", Kind.BUFFER, memory, "history", PLAIN, 0)])
    step = 0
    while (step := own_rows.following(step)) < turns.NEVER:
        write(memory.history, step)
        own_rows.look(torch, step)
        own_rows.look(torch, step)  # of a second optimizer
    SIGNALS.record("marker", 0.0, 1)
    fact = told(recording).fact(0, "buffers/rows")
    return fact[1] if fact is not None else None


def by_samples(table: torch.Tensor, step: int) -> None:
    """Rows of shares, which add up to 1 before and after."""
    rows = torch.arange(8 * (step % 40), 8 * (step % 40) + 8)
    table[rows] = torch.tensor([0.1, 0.2, 0.3, 0.4]) if table.dim() > 1 else 7.0


@pytest.mark.parametrize("shape", [(ROWS, 4), (ROWS,), (ROWS, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_rows_that_each_step_writes_are_counted(
    recording: BoxWriter, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    def write(table: torch.Tensor, step: int) -> None:
        rows = slice(8 * (step % 40), 8 * (step % 40) + 8)
        table[rows] = table[rows] + 1

    assert looked_at(recording, Memory(dtype, shape), write) == f"Net.history\t8\t8\t0\t{ROWS}"


def test_rows_whose_sum_stays_the_same_are_seen(recording: BoxWriter) -> None:
    assert looked_at(recording, Memory(), by_samples) == f"Net.history\t8\t8\t0\t{ROWS}"


def test_rows_that_are_written_again_are_counted_as_both_steps(recording: BoxWriter) -> None:
    def write(table: torch.Tensor, step: int) -> None:
        table[:16] += step

    assert looked_at(recording, Memory(), write) == f"Net.history\t16\t16\t16\t{ROWS}"


def test_what_is_no_table_or_is_not_written_is_not_told(recording: BoxWriter) -> None:
    assert looked_at(recording, Memory(), lambda table, step: None) is None
    assert looked_at(recording, Memory(shape=(8, 4)), lambda table, step: table.add_(1)) is None  # type: ignore[arg-type]


def test_steps_that_do_not_follow_each_other_are_not_compared(recording: BoxWriter) -> None:
    memory = Memory()
    NAMED.follow([inventory.Found("Net.history", Kind.BUFFER, memory, "history", PLAIN, 0)])
    first = own_rows.FIRST[0]
    for step in (first, first + 2, own_rows.FIRST[1]):
        by_samples(memory.history, step)
        own_rows.look(torch, step)
    assert own_rows.OWN_ROWS.lines == {}
    assert [one.step for one in own_rows.OWN_ROWS.looks] == [own_rows.FIRST[1]]


@pytest.mark.parametrize("world", [1, 2])
def test_a_process_alone_is_not_looked_at(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch, world: int) -> None:
    known = SimpleNamespace(is_initialized=lambda: True, get_world_size=lambda: world)
    monkeypatch.setitem(sys.modules, "torch.distributed", known)
    recording.live[Live.STEP] = own_rows.FIRST[0]
    own_rows._after(None)
    assert len(own_rows.OWN_ROWS.looks) == world - 1
