"""Counters in half precision, as they are seen to stand still."""

from collections.abc import Iterator

import pytest
import torch
from tests.probes.scalars import clean, told
from torch import nn

from diagd.probes import counters, inventory
from diagd.probes.box.ledger import Kind
from diagd.probes.box.writer import BoxWriter
from diagd.probes.named import NAMED
from diagd.probes.placement import PLAIN
from diagd.probes.signals import SIGNALS


class Meter(nn.Module):
    ticks: torch.Tensor

    def __init__(self, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("ticks", torch.zeros(shape, dtype=dtype))


@pytest.fixture(autouse=True)
def _clean(recording: BoxWriter) -> Iterator[None]:
    with clean():
        counters.COUNTERS.__init__()  # type: ignore[misc]
        yield
        counters.COUNTERS.__init__()  # type: ignore[misc]


def said_after(box: BoxWriter, dtype: torch.dtype, ticks: int, most: int = 1 << 30, every: int = 1) -> str:
    meter = Meter(dtype)
    NAMED.follow([inventory.Found("Meter.ticks", Kind.BUFFER, meter, "ticks", PLAIN, 0)])
    for tick in range(1, ticks + 1):
        meter.ticks += (tick <= most) * (tick % every == 0)
        if tick % 64 == 0:
            counters.look(tick)
    SIGNALS.record("marker", 0.0, 1)
    fact = told(box).fact(0, "buffers/stuck")
    return fact[1] if fact is not None else ""


def test_a_counter_that_can_count_no_further_is_told(recording: BoxWriter) -> None:
    assert said_after(recording, torch.bfloat16, 500) == "Meter.ticks\tbfloat16"


def test_so_is_one_in_float16_once_it_has_come_so_far(recording: BoxWriter) -> None:
    assert said_after(recording, torch.float16, 2304) == "Meter.ticks\tfloat16"


@pytest.mark.parametrize(("share", "text"), [(1.0, "Meter.ticks\tbfloat16"), (0.5, "")])
def test_of_several_counts_the_largest_is_judged_and_of_parts_of_one_none(
    recording: BoxWriter, share: float, text: str
) -> None:
    meter = Meter(torch.bfloat16, (3,))
    NAMED.follow([inventory.Found("Meter.ticks", Kind.BUFFER, meter, "ticks", PLAIN, 0)])
    for tick in range(1, 501):
        meter.ticks[0 if tick % 20 else 1] += 1
        meter.ticks[2] = share
        if tick % 64 == 0:
            counters.look(tick)
    SIGNALS.record("marker", 0.0, 1)
    fact = told(recording).fact(0, "buffers/stuck")
    assert (fact[1] if fact is not None else "") == text


@pytest.mark.parametrize(("dtype", "ticks", "most"), [
    (torch.float16, 1900, 1 << 30),  # still counts
    (torch.float32, 2400, 1 << 30),
    (torch.bfloat16, 500, 200),  # is no longer counted with
])  # fmt: skip
def test_what_goes_on_or_rests_elsewhere_is_not(
    recording: BoxWriter, dtype: torch.dtype, ticks: int, most: int
) -> None:
    assert said_after(recording, dtype, ticks, most) == ""


def test_a_constant_of_that_value_has_not_counted(recording: BoxWriter) -> None:
    meter = Meter(torch.bfloat16)
    meter.ticks.fill_(256.0)
    NAMED.follow([inventory.Found("Meter.ticks", Kind.BUFFER, meter, "ticks", PLAIN, 0)])
    for step in range(1, 9):
        counters.look(step)
    SIGNALS.record("marker", 0.0, 1)
    assert told(recording).fact(0, "buffers/stuck") is None
