"""By which variables a script knows its models."""

import copy
import sys
from collections.abc import Iterator

import pytest
from tests.probes.scalars import clean, told
from torch import nn

from diagd.probes import aliases, sites
from diagd.probes.box.writer import BoxWriter
from diagd.probes.signals import SIGNALS


class Net(nn.Module):
    """A class that says what it is."""


class Trainer:
    """Holds a model of its own."""

    def __init__(self) -> None:
        self.teacher = nn.Sequential(nn.Linear(2, 2))


@pytest.fixture(autouse=True)
def _clean(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sites, "is_user", lambda frame: True)
    with clean():
        yield


def said(recording: BoxWriter) -> dict[str, str]:
    SIGNALS.record("loss", 1.0, 1)  # so that there is something to read
    fact = told(recording).fact(0, "models/aliases")
    return dict(line.split("\t") for line in fact[1].splitlines()) if fact is not None else {}


def look() -> None:
    """No test, as these are compiled with a look at their variables."""
    trainer, net, student = Trainer(), Net(), nn.Sequential(nn.Linear(2, 2))
    average, wrapped = copy.deepcopy(net), nn.DataParallel(net)  # a wrapper's title is that of what it wraps
    titled = (
        ("Sequential#1", student), ("Sequential#2", trainer.teacher), ("Net", net), ("Net (copy)", average),
        ("ReLU", [nn.ReLU()][0]), ("Reader", wrapped),
    )  # fmt: skip
    aliases.tell(titled, sys._getframe())


def test_a_variable_or_an_attribute_names_what_its_class_does_not(recording: BoxWriter) -> None:
    look()
    assert said(recording) == {"Sequential#1": "student", "Sequential#2": "teacher", "Net (copy)": "average"}
