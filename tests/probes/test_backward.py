"""A backward pass that raises, which the script may catch."""

from collections.abc import Iterator

import pytest
import torch
from tests.probes.scalars import clean, told
from torch import nn

from diagd.probes import backward
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with clean():
        backward.install(Probe("backward", 0, always=True), torch.autograd)
        yield
        backward.remove()


def breaks(gradient: torch.Tensor) -> None:
    raise RuntimeError("[gloo/transport/tcp] Connection closed by peer\nGLHF")


def test_what_a_pass_raises_is_told_and_reaches_the_script(recording: BoxWriter) -> None:
    layer = nn.Linear(2, 1)
    layer.weight.register_hook(breaks)  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        layer(torch.ones(1, 2)).sum().backward()
    fact = told(recording).fact(0, "backward/broke")
    assert fact is not None
    step, text = fact
    assert step == 1
    assert text.split("\t")[0] == "RuntimeError: [gloo/transport/tcp] Connection closed by peer … GLHF"
