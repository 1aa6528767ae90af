"""What an optimizer is said to allocate in its first step is what it then has allocated."""

from typing import Any

import pytest
import torch

from diagd.probes import states_ahead

CASES: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.AdamW, {"foreach": False}),
    (torch.optim.NAdam, {}),
    (torch.optim.RAdam, {}),
    (torch.optim.Adamax, {}),
    (torch.optim.Adadelta, {}),
    (torch.optim.Rprop, {}),
    (torch.optim.ASGD, {}),
    (torch.optim.RMSprop, {}),
    (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    found: dict[str, float] = {}

    class Signals:
        @staticmethod
        def record(name: str, value: float, step: int) -> None:
            found[name] = value

    monkeypatch.setattr(states_ahead, "SIGNALS", Signals)
    return found


def model() -> torch.nn.Module:
    net = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.Linear(64, 8))
    net[0](torch.ones(2, 40)).sum().backward()  # the second layer takes no part, so it gets no state
    return net


def large(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the state's tensors, but for the counters."""
    held = (value for state in optimizer.state.values() for value in state.values())
    return sum(v.numel() * v.element_size() for v in held if isinstance(v, torch.Tensor) and v.numel() > 1)


@pytest.mark.parametrize(("cls", "options"), CASES, ids=[f"{c.__name__}{o or ''}" for c, o in CASES])
def test_the_first_step_allocates_what_was_foretold(
    told: dict[str, float], cls: type[torch.optim.Optimizer], options: dict[str, Any]
) -> None:
    optimizer = cls(model().parameters(), **({"lr": 0.1} | options))
    states_ahead.foretell(optimizer, 1)
    optimizer.step()
    assert told.get("memory/state_ahead", 0.0) == large(optimizer)
    told.clear()
    states_ahead.foretell(optimizer, 2)
    assert told == {}


def test_a_class_of_the_scripts_own_counts_as_what_it_derives_from(told: dict[str, float]) -> None:
    class Warm(torch.optim.AdamW):
        """As scripts write them."""

    optimizer = Warm(model().parameters())
    states_ahead.foretell(optimizer, 1)
    assert told == {"memory/state_ahead": 2 * 4 * (40 * 64 + 64)}


@pytest.mark.parametrize("cls", [torch.optim.Adagrad, torch.optim.LBFGS])
def test_of_others_nothing_is_foretold(told: dict[str, float], cls: type[torch.optim.Optimizer]) -> None:
    states_ahead.foretell(cls(model().parameters()), 1)  # type: ignore[call-arg]
    assert told == {}
