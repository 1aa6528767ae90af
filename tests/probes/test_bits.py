"""Which numbers are float16's, and what is told of the gradients of a real step."""

import pytest
import torch
from torch import nn

from diagd.probes import bits
from diagd.probes.signals import SIGNALS


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_numbers_tell_in_which_dtype_they_were(dtype: torch.dtype, size: float) -> None:
    values = (size * torch.randn(4000, generator=torch.Generator().manual_seed(1))).to(dtype).float().abs()
    assert bits.are_half(values[values > 0].tolist()) == (dtype is torch.float16)


def test_round_numbers_were_not_necessarily_in_float16() -> None:
    assert not bits.are_half([0.5, 0.25, 1.0, 3.0] * 8)


@pytest.mark.parametrize(("through", "told"), [(torch.float16, [1.0]), (torch.bfloat16, [0.0]), (torch.float32, [0.0])])
def test_gradients_tell_through_which_dtype_they_came(
    through: torch.dtype, told: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    monkeypatch.setattr(SIGNALS, "record", lambda name, value, step: seen.append(value))
    torch.manual_seed(0)
    net = nn.Linear(40, 40)
    net(torch.randn(8, 40)).square().mean().backward()
    for parameter in net.parameters():
        assert parameter.grad is not None
        parameter.grad = parameter.grad.to(through).float()
    bits.tell(list(net.parameters()), 8)
    assert seen == told


def test_of_few_numbers_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr(SIGNALS, "record", lambda name, value, step: seen.append(value))
    net = nn.Linear(3, 1)
    net(torch.ones(1, 3)).backward()
    bits.tell(list(net.parameters()), 8)
    bits.tell([], 8)
    assert seen == []
