"""The norm that clipping returns is told with its limit, and the script gets what it would get without us."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from tests.probes.scalars import clean, series
from torch import nn

from diagd.probes import clipping
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe


@pytest.fixture
def utils() -> Iterator[SimpleNamespace]:
    module = SimpleNamespace(__name__="torch.nn.utils", clip_grad_norm_=nn.utils.clip_grad_norm_)
    with clean():
        clipping.install(Probe("clipping", 0, always=True), module)
        yield module
        clipping.remove()


def given(*values: float) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(len(values)))
    parameter.grad = torch.tensor(values)
    return parameter


@pytest.mark.parametrize("named", [True, False])
def test_the_norm_before_clipping_and_its_limit_are_told(
    recording: BoxWriter, utils: SimpleNamespace, named: bool
) -> None:
    parameter = given(3.0, 4.0)
    norm = utils.clip_grad_norm_([parameter], max_norm=1.0) if named else utils.clip_grad_norm_([parameter], 1.0)
    assert norm.item() == 5.0
    assert parameter.grad is not None
    assert parameter.grad.norm().item() == pytest.approx(1.0)
    assert series(recording, "clip_norm").values.tolist() == [5.0]
    assert series(recording, "clip_norm/limit").values.tolist() == [1.0]
    assert series(recording, "clip_norm").steps.tolist() == [1]


def test_what_is_no_plain_tensor_is_not_told(recording: BoxWriter) -> None:
    with clean():
        clipping._after(((), {}), object())
        clipping._after(((), {}), nn.Parameter(torch.ones(())))
        clipping._after(((), {"max_norm": 2.0}), torch.ones(()))
        assert series(recording, "clip_norm").values.tolist() == [1.0]
