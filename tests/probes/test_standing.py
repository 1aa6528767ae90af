"""Running statistics in half precision that are written and stay."""

from collections.abc import Callable, Iterator

import pytest
import torch
from tests.probes.scalars import clean, told
from torch import Tensor, nn

from diagd.probes import inventory, standing
from diagd.probes.box.ledger import Kind
from diagd.probes.box.writer import BoxWriter
from diagd.probes.named import NAMED
from diagd.probes.placement import PLAIN
from diagd.probes.signals import SIGNALS


@pytest.fixture(autouse=True)
def _clean(recording: BoxWriter) -> Iterator[None]:
    with clean():
        standing.STANDING.__init__()  # type: ignore[misc]
        yield
        standing.STANDING.__init__()  # type: ignore[misc]


def follow(buffer: Tensor) -> None:
    buffer += 0.005 * (5.0 + 0.1 * torch.rand(()) - buffer)


def said_after(
    box: BoxWriter, steps: int, dtype: torch.dtype = torch.bfloat16, name: str = "level_mean",
    update: Callable[[Tensor], None] = follow,
) -> str:  # fmt: skip
    torch.manual_seed(0)
    meter = nn.Module()
    meter.register_buffer(name, torch.full((8,), 4.5, dtype=dtype))
    NAMED.follow([inventory.Found(f"Meter.{name}", Kind.BUFFER, meter, name, PLAIN, 0)])
    for step in range(1, steps + 1):
        update(getattr(meter, name))
        if step % 16 == 0:
            standing.look(step)
    SIGNALS.record("loss", 1.0, steps)  # so that there is something to read
    fact = told(box).fact(0, "buffers/standing")
    return fact[1] if fact is not None else ""


def test_a_mean_whose_steps_are_rounded_away_is_told_with_how_often_it_was_written(recording: BoxWriter) -> None:
    assert said_after(recording, 96) == "Meter.level_mean\tbfloat16\t48"


@pytest.mark.parametrize("other", [
    {"dtype": torch.float32}, {"name": "mask"}, {"steps": 48}, {"update": lambda buffer: None},
    {"update": lambda buffer: buffer.add_(0.1 * torch.randn(8))},
])  # fmt: skip
def test_what_moves_or_is_not_written_or_is_no_statistic_is_none(
    recording: BoxWriter, other: dict[str, object]
) -> None:
    assert said_after(recording, **{"steps": 96, **other}) == ""  # type: ignore[arg-type]
