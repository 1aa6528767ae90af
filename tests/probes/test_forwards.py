"""What a look at a forward pass counts: the calls of modules with parameters, and those of them under autocast."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils.checkpoint

from diagd.probes import forwards
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.signals import SIGNALS


def run() -> None:
    """A forward pass of two layers with parameters; the model is gone afterwards, as others look for models."""
    torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))(torch.ones(2, 4))


@pytest.fixture
def looking(recording: BoxWriter) -> Iterator[None]:
    """A look is open."""
    forwards.PASS.__init__()  # type: ignore[misc]
    seen = forwards._guarded(torch, Probe("forwards", 3, always=True), forwards._returned, forwards._returned_elsewhere)
    handle = torch.nn.modules.module.register_module_forward_hook(seen)
    yield
    handle.remove()
    forwards.PASS.__init__()  # type: ignore[misc]


def here(work: Callable[[], None]) -> None:
    work()


def in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize(("where", "under"), [(here, 2), (in_a_thread, 0)])
def test_a_region_holds_in_the_thread_that_entered_it(
    looking: None, where: Callable[[Callable[[], None]], None], under: int
) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        where(run)
    assert (forwards.PASS.calls, forwards.PASS.under) == (2, under)


def test_what_evaluates_in_another_thread_does_not_count(looking: None) -> None:
    def evaluate() -> None:
        with torch.no_grad():
            run()

    in_a_thread(evaluate)
    assert forwards.PASS.calls == 0


class Kept(torch.autograd.Function):
    """A checkpoint made by hand: keeps the input, and runs the module again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, module: torch.nn.Module, x: torch.Tensor) -> Any:
        ctx.module = module
        ctx.save_for_backward(x)
        return module(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            again = ctx.module(x)
        torch.autograd.backward(again, grads[0].to(again.dtype))
        return None, x.grad


def by_hand(module: torch.nn.Module, x: torch.Tensor) -> Any:
    return Kept.apply(module, x)  # type: ignore[no-untyped-call]


def by_torch(module: torch.nn.Module, x: torch.Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(module, x, use_reentrant=True)


def not_again(module: torch.nn.Module, x: torch.Tensor) -> Any:
    with torch.no_grad():
        module(x)
    return module(x)


@pytest.mark.parametrize(("way", "told"), [(by_hand, [0.0]), (by_torch, [1.0]), (not_again, [])])
def test_what_is_run_again_in_the_backward_pass_is_seen_with_its_autocast(
    way: Callable[[torch.nn.Module, torch.Tensor], Any], told: list[float], looking: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    seen: dict[str, list[float]] = {}
    monkeypatch.setattr(SIGNALS, "record", lambda name, value: seen.setdefault(name, []).append(value))
    block = torch.nn.Linear(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        loss = way(block, torch.ones(2, 4, requires_grad=True)).float().sum()
    forwards._before_backward(None)
    loss.backward()
    forwards._after_backward(None)
    assert seen.get("autocast/again", []) == told
    assert not forwards.PASS.repeating
