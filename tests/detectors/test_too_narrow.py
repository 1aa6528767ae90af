"""Copies of a model whose wrappers average over halves of the ranks that share each sample."""

from dataclasses import replace

import pytest
from tests.detectors.states import Job
from tests.detectors.tensors import Content, ledgers, own, same, training

from diagd.daemon.state.tensors import TensorInfo

HALVES = ((0, 2), (1, 3))
NAMES = ("Net.body.weight", "Net.body.bias", "Net.norm.weight")


def apart(rank: int, step: int) -> int:
    """Equal before the first step, by halves after it."""
    return own(rank % 2, step) if step else 7


def wrapped(hold: dict[str, Content], within: str = "0:1:1 2:3:1") -> Job:
    """Two wrappers of two ranks each; in which groups backward passes exchange something."""
    made = training({}, 4)
    for half in HALVES:
        tensors = {TensorInfo(name, shape=(4,), placement="ddp", peers=half): what for name, what in hold.items()}
        made.state.tensors.apply(ledgers(tensors, half), 4)
    for rank in range(4):
        told = " ".join(group for group in within.split() if str(rank) in (group[0], group[2]))
        if told:
            made.state.signals.put_fact(rank, "data/within", 9, told)
    return made


def test_copies_that_are_averaged_over_halves_of_the_ranks_that_share_samples_are_told() -> None:
    found = wrapped(dict.fromkeys(NAMES, apart)).finds()
    assert (found.kind, found.ranks, found.step) == ("divergence.gradient", (0, 1, 2, 3), 1)
    assert found.names == NAMES
    assert found.causes[0].key == "mixed"
    assert "the wrapper averages over ranks 0,2 alone" in found.causes[0].evidence[-1].what


@pytest.mark.parametrize("hold", [
    {**dict.fromkeys(NAMES, apart), "Net.norm.weight": same},  # shards that began from one seed
    dict.fromkeys(NAMES, lambda rank, step: own(rank % 2, step)),  # shards
    dict.fromkeys(NAMES, same),
])  # fmt: skip
def test_shards_and_copies_that_stay_equal_are_healthy(hold: dict[str, Content]) -> None:
    assert not wrapped(hold).find()


@pytest.mark.parametrize("within", ["", "0:2:2 1:3:2", "0:1:1"])
def test_models_that_exchange_nothing_across_their_wrappers_are_trained_apart(within: str) -> None:
    assert not wrapped(dict.fromkeys(NAMES, apart), within).find()


def test_frozen_copies_say_nothing() -> None:
    made = training({}, 4)
    for half in HALVES:
        info = TensorInfo(NAMES[0], shape=(4,), placement="ddp", peers=half)
        made.state.tensors.apply(ledgers({replace(info, owned=False): apart}, half), 4)
    assert not made.find()
