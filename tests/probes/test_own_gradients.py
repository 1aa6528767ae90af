"""Whose gradients are not finite: seen before they are reduced, for a while, and without a bit of theirs changed."""

from collections.abc import Iterator

import pytest
import torch
from tests.probes.scalars import clean, look, told
from torch import nn

from diagd.probes import clipping, compiling, later
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.own_gradients import ENOUGH, PASSES, SIGNAL, TROUBLE, WATCH


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with clean():
        WATCH.__init__()  # type: ignore[misc]
        WATCH.probe = Probe("clipping", 0, always=True)
        yield
        WATCH.end()
        WATCH.__init__()  # type: ignore[misc]


def model() -> nn.Sequential:
    torch.manual_seed(1)
    made = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    look(made)
    return made


def one_pass(made: nn.Sequential, bad: bool, step: int = 1) -> list[torch.Tensor]:
    """A pass whose gradients behind the first layer are NaN where it is `bad`, as by sqrt at 0; then clipping."""
    for p in made.parameters():
        p.grad = None
    inside = made[0](torch.ones(2, 4))
    out = made[1](inside)
    loss = out.sum() + (torch.sqrt(inside * 0.0).sum() if bad else 0.0)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(made.parameters(), 1.0)
    clipping._after(((), {"max_norm": 1.0}), norm)
    assert norm.isfinite().item() != bad
    return [p.grad.clone() for p in made.parameters() if p.grad is not None]


def hooks(made: nn.Sequential) -> int:
    return sum(len(p._backward_hooks or ()) for p in made.parameters())


def test_after_two_such_norms_the_next_passes_say_which_gradients_were_bad_here(recording: BoxWriter) -> None:
    made = model()
    for number in range(TROUBLE):
        assert hooks(made) == 0, number
        one_pass(made, bad=True)
    assert hooks(made) == 4
    one_pass(made, bad=False)
    one_pass(made, bad=True)
    found = told(recording).series(0, SIGNAL)
    assert found is not None
    assert found.values.tolist() == [0.0, 2.0]
    fact = told(recording).fact(0, SIGNAL)
    assert fact is not None
    assert {name.rpartition("0.")[2] for name in fact[1].split(", ")} == {"weight", "bias"}


@pytest.mark.parametrize(("bad", "passes"), [(True, ENOUGH), (False, PASSES)])
def test_the_hooks_stay_for_some_passes_only(recording: BoxWriter, bad: bool, passes: int) -> None:
    made = model()
    for _ in range(TROUBLE):
        one_pass(made, bad=True)
    for _ in range(passes):
        assert hooks(made) == 4
        one_pass(made, bad)
    assert hooks(made) == 0
    for _ in range(3):
        one_pass(made, bad=True)
    assert hooks(made) == 0


def test_the_gradients_are_the_same_to_the_last_bit(recording: BoxWriter) -> None:
    alone, watched = model(), model()
    WATCH.trouble = TROUBLE
    with_hooks = [one_pass(watched, bad=False) for _ in range(3)][-1]
    WATCH.end()
    without = [one_pass(alone, bad=False) for _ in range(3)][-1]
    assert all(torch.equal(one, other) for one, other in zip(with_hooks, without, strict=True))


def test_where_models_are_compiled_nothing_is_hung_on_them(
    recording: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "in_use", lambda: True)
    made = model()
    for _ in range(4):
        one_pass(made, bad=True)
    assert hooks(made) == 0


def test_a_failure_of_its_own_does_not_reach_the_script(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    for _ in range(TROUBLE):
        one_pass(made, bad=True)

    def broken(gradient: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(later, "plain", broken)
    made[0](torch.ones(2, 4)).sum().backward()
    assert WATCH.probe is not None
    assert WATCH.probe.errors > 0
