"""What was left in a checkpoint, as the ranks tell it."""

import pytest
from tests.detectors.states import Job, job

from diagd.daemon.detectors.finding import Severity


def told(name: str, text: str, ranks: tuple[int, ...] = (0, 1)) -> Job:
    made = job(2).train(0, 1).passes(1.0)
    for rank in ranks:
        made.state.signals.put_fact(rank, f"checkpoint/{name}", 3, text)
    return made


@pytest.mark.parametrize(
    ("name", "text", "names", "said"),
    [
        ("names", "14 of 16|module.|file|fc.weight,fc.bias", ("fc.weight", "fc.bias"), "checkpoint's names begin with"),
        ("names", "4 of 4|net.|model|net.fc.weight", ("net.fc.weight",), "model's names begin with 'net.'"),
        ("optimizer", "last.pt|12", ("optimizer state",), "state of 12 parameters"),
        ("schedule", "last.pt|400", ("lr", "scheduler"), "stands at 400"),
    ],
)
def test_it_is_said_what_was_left(name: str, text: str, names: tuple[str, ...], said: str) -> None:
    found = told(name, text).finds()
    assert (found.kind, found.severity, found.ranks) == ("divergence.checkpoint", Severity.WARNING, (0, 1))
    assert (found.names, found.step, found.causes[0].key) == (names, 3, name)
    assert said in found.summary


def test_only_the_ranks_that_left_it_are_named() -> None:
    assert told("optimizer", "last.pt|12", (1,)).finds().ranks == (1,)


@pytest.mark.parametrize(("name", "text"), [("names", ""), ("loaded", "Net"), ("names", "cut off at a strange place")])
def test_of_what_was_loaded_nothing_is_said(name: str, text: str) -> None:
    assert not told(name, text).find()
