"""How many bits numbers have, and what is told of the gradients of a real step."""

import pytest
import torch
from torch import nn

from diagd.probes import bits
from diagd.probes.signals import SIGNALS


@pytest.mark.parametrize(("dtype", "most"), [(torch.float16, 11), (torch.bfloat16, 8), (torch.float32, 24)])
def test_a_dtype_has_so_many_bits(dtype: torch.dtype, most: int) -> None:
    values = torch.randn(4000, generator=torch.Generator().manual_seed(1)).to(dtype).float()
    assert max(bits.bits(value) for value in (values / 4).tolist()) == most
    assert [bits.bits(value) for value in (1.0, -0.5, 3.0, 2.0**-24, 1.0 + 2.0**-23)] == [1, 1, 2, 1, 24]


@pytest.mark.parametrize(("through", "told"), [(torch.float16, [11.0]), (torch.float32, [24.0])])
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
