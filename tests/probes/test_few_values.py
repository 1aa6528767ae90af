"""Marks of tensors: from the CPU at once, from a device when their copy has arrived, and the same."""

from collections.abc import Callable

import pytest
import torch

from diagd.probes import few_values, later, marks
from diagd.probes.few_values import Marks
from diagd.probes.marks import Kept
from diagd.probes.signals import SIGNALS

Flights = list[Callable[[], None]]
NAMED = [
    ("long", torch.arange(30.0).reshape(5, 6)),
    ("short", torch.tensor([1.5, 2.5])),
    ("half", torch.ones(9).half()),
]


@pytest.fixture
def flights(monkeypatch: pytest.MonkeyPatch) -> Flights:
    """Copies under way from what stands for a device here."""
    under_way: Flights = []

    def read(values: torch.Tensor, take: Callable[[list[float]], None]) -> None:
        copied = values.tolist()
        under_way.append(lambda: take(copied))

    monkeypatch.setattr(few_values, "_is_at_hand", lambda device: False)
    monkeypatch.setattr(later, "read", read)
    return under_way


def taken(named: list[tuple[str, torch.Tensor]]) -> list[Marks]:
    found: list[Marks] = []
    assert few_values.take(named, found.append) == 1
    return found


def test_a_mark_holds_the_size_and_some_values_of_both_ends() -> None:
    (found,) = taken(NAMED)
    assert found["long"] == (30.0, 0.0, 1.0, 2.0, 3.0, 26.0, 27.0, 28.0, 29.0)
    assert found["short"] == (2.0, 1.5, 2.5, 1.5, 2.5)
    assert found["half"] == (9.0, *([1.0] * 8))


def test_what_cannot_be_read_is_left_out() -> None:
    sparse = torch.eye(3).to_sparse()
    (found,) = taken([("sparse", sparse), ("across", torch.ones(3, 4).t()), ("whole", torch.ones(3))])
    assert list(found) == ["whole"]
    assert taken([]) == [{}]


def test_from_a_device_the_same_comes_later_as_it_was(flights: Flights) -> None:
    tensor = torch.arange(30.0)
    found = taken([("a", tensor), ("b", torch.ones(2))])
    assert found == []
    tensor.add_(1)  # the optimizer's step
    flights.pop()()
    assert found == [{"a": (30.0, 0.0, 1.0, 2.0, 3.0, 26.0, 27.0, 28.0, 29.0), "b": (2.0, 1.0, 1.0, 1.0, 1.0)}]


def test_what_waits_for_marks_is_done_once_all_have_come(flights: Flights) -> None:
    done: list[str] = []
    kept = Kept([("w", torch.ones(3))], [("w", torch.zeros(3))])
    kept.when_there(lambda: done.append("first"))
    assert not kept.is_there
    assert not kept.is_empty
    flights.pop()()
    assert done == []
    flights.pop()()
    kept.when_there(lambda: done.append("second"))
    assert done == ["first", "second"]
    assert (list(kept.weights), list(kept.moments)) == (["w"], ["w"])


def test_what_did_not_come_back_from_a_file_is_told_once_it_is_known(
    flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str, int | None]] = []
    monkeypatch.setattr(SIGNALS, "fact", lambda *fact: told.append(fact))
    weight = torch.nn.Parameter(torch.arange(30.0))
    optimizer, known = torch.optim.SGD([weight], lr=0.1), marks._Marks()
    known.expected = marks.kept_by(optimizer)
    with torch.no_grad():
        weight.add_(1.0)
    known.compare(optimizer, marks.kept_by(optimizer), 7)
    assert told == []
    while flights:
        flights.pop(0)()
    ((name, text, step),) = told
    assert (name, text.partition("|")[0], step) == ("checkpoint/changed", "1 of 1", 7)


def test_of_no_tensors_there_is_nothing_to_wait_for() -> None:
    assert Kept([], []).is_empty
