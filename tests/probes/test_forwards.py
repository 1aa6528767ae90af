"""What a look at a forward pass counts: the calls of modules with parameters, and those of them under autocast."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from diagd.probes import forwards
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe


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
