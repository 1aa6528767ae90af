"""Which models are called in training that are not trained by it."""

from collections.abc import Iterator

import pytest
from torch import nn

from diagd.probes import references
from diagd.probes.signals import SIGNALS


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(SIGNALS, "fact", lambda name, text, step=None: found.append((name, text)))
    references.forget()
    yield found
    references.forget()


class Student(nn.Linear):
    """A model with a name of its own."""


class Teacher(nn.Linear):
    """Another one."""


def test_frozen_models_that_are_called_are_told_once_and_by_their_titles(told: list[tuple[str, str]]) -> None:
    student, teacher, loss = Student(2, 2), Teacher(2, 2).requires_grad_(False), nn.MSELoss()
    references.tell([student, teacher, loss])
    references.tell([student, teacher])
    assert told == [("forward/frozen", "Teacher")]
    references.tell([Student(2, 2).requires_grad_(False)])
    assert told[-1] == ("forward/frozen", "Student,Teacher")


def test_where_all_train_nothing_is_told(told: list[tuple[str, str]]) -> None:
    references.tell([Student(2, 2), nn.ReLU()])
    assert told == []
