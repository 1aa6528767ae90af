"""Buffers that stop being finite, as the fact tells them."""

import math
from collections.abc import Iterator

import pytest
import torch
from tests.probes.scalars import clean, told
from torch import nn

from diagd.probes import inventory, spoilt
from diagd.probes.box.ledger import Flag, Kind
from diagd.probes.box.writer import BoxWriter
from diagd.probes.named import NAMED
from diagd.probes.placement import PLAIN
from diagd.probes.signals import SIGNALS


class Gauge(nn.Module):
    level: torch.Tensor
    other: torch.Tensor

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.register_buffer("level", torch.ones(4, dtype=dtype))
        self.register_buffer("other", torch.ones(3))


@pytest.fixture(autouse=True)
def _clean(recording: BoxWriter) -> Iterator[None]:
    with clean():
        spoilt.SPOILT.__init__()  # type: ignore[misc]
        yield
        spoilt.SPOILT.__init__()  # type: ignore[misc]


def follow(gauge: nn.Module, flags: int = 0) -> None:
    names = ("level", "other")
    NAMED.follow([inventory.Found(f"Gauge.{n}", Kind.BUFFER, gauge, n, PLAIN, flags) for n in names])
    spoilt.look(1)


def said(box: BoxWriter) -> tuple[int, str] | None:
    SIGNALS.record("marker", 0.0, 1)
    return told(box).fact(0, "buffers/spoilt")


def test_a_buffer_that_takes_nan_is_told_once_with_its_step(recording: BoxWriter) -> None:
    gauge = Gauge()
    follow(gauge)
    assert said(recording) is None
    gauge.level[2] = math.nan
    spoilt.look(8)
    spoilt.look(16)
    assert said(recording) == (8, "Gauge.level\tfloat32\tnan")
    gauge.other[0] = math.nan
    spoilt.look(24)
    assert said(recording) == (24, "Gauge.level\tfloat32\tnan\nGauge.other\tfloat32\tnan")


def test_in_half_precision_an_infinity_is_told_too(recording: BoxWriter) -> None:
    gauge = Gauge(torch.float16)
    follow(gauge)
    gauge.level *= 60_000
    gauge.level *= 2
    spoilt.look(8)
    assert said(recording) == (8, "Gauge.level\tfloat16\tinf")


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinities_in_full_precision_may_be_meant(recording: BoxWriter, value: float) -> None:
    gauge = Gauge()
    follow(gauge)
    gauge.level[0] = value
    spoilt.look(8)
    assert said(recording) is None


def test_what_was_never_finite_or_is_not_saved_is_left_alone(recording: BoxWriter) -> None:
    gauge = Gauge()
    gauge.level[0] = math.nan
    follow(gauge)
    spoilt.look(8)
    follow(gauge, flags=int(Flag.TRANSIENT))
    gauge.other[0] = math.nan
    spoilt.look(16)
    assert said(recording) is None


def test_a_model_that_is_gone_is_no_longer_looked_at(recording: BoxWriter) -> None:
    gauge = Gauge()
    follow(gauge)
    del gauge
    spoilt.look(8)
    assert said(recording) is None
