"""A small training in this process, with the probes' hooks called as torch calls them in a rank."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from diagd.daemon.agent.signals import SignalReader
from diagd.daemon.state.signals import Series, SignalBook
from diagd.probes import census, inventory, later, losses, norms, unlisted
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.budget import BUDGET
from diagd.probes.named import NAMED
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

Loss = Callable[[], torch.Tensor]


@contextmanager
def clean() -> Iterator[None]:
    """Nothing is known of an earlier test's models."""
    for thing in (norms.NORMS, census.CENSUS, unlisted.UNLISTED, losses.LOSSES, NAMED, SIGNALS):
        thing.__init__()  # type: ignore[misc]
    losses.WATCHED.clear()
    BUDGET.forget()
    later.forget()
    yield
    losses.WATCHED.clear()


def look(*models: nn.Module) -> None:
    """Find these models, and no other test's."""
    mine = {id(module) for model in models for module in model.modules()}
    survey = inventory.survey()
    strangers = [place for place in survey.strangers if getattr(place.tensor(), "_of_this_test", False)]
    found = [one for one in survey.found if id(one.module) in mine]
    NAMED.take(inventory.Survey(found, strangers, tuple(one for one in survey.trained if id(one[1]) in mine)))


def step(loss: torch.Tensor, *optimizers: torch.optim.Optimizer, clear: bool = True) -> None:
    """One training step."""
    if clear:
        for optimizer in optimizers:
            optimizer.zero_grad()
    backward(loss)
    for optimizer in optimizers:
        norms._before(optimizer)
        optimizer.step()
    STATE.live[Live.STEP] = max(STATE.live[Live.STEP], 0) + 1
    for optimizer in optimizers:
        norms._after(optimizer)


def backward(loss: torch.Tensor) -> None:
    """One backward pass."""
    losses._before(loss)
    loss.backward()  # type: ignore[no-untyped-call]
    losses._after(loss)


def told(box: BoxWriter) -> SignalBook:
    """What has been told so far, as the aggregator has it."""
    book = SignalBook()
    news = SignalReader(box.path.with_suffix(".signals"), 0, 1).news()
    book.apply([news] if news is not None else [])
    return book


def series(box: BoxWriter, name: str) -> Series:
    """One series of it, which must be there."""
    found = told(box).series(0, name)
    assert found is not None, told(box).names(0)
    return found
