"""Samplers that do not draw the same permutation on all ranks."""

import pytest
from tests.detectors.tensors import same, training
from tests.detectors.test_apart import DDP

from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.detectors.shuffles import other_orders
from diagd.daemon.incidents.catalog import entry


def told(*facts: str, steps: tuple[int, ...] = (9, 9, 9)) -> list[tuple[tuple[int, ...], str]]:
    made = training({DDP: same}, 3, (0, 1))
    for rank, text in enumerate(facts):
        made.state.signals.put_fact(rank, "data/replicas", 1, "ddp 0:2:1")
        if text:
            made.state.signals.put_fact(rank, "data/shuffle", steps[rank], text)
    found = list(other_orders(scene_of(made.report().state)))
    assert all(entry(one.kind).fix(one.causes[0].key).as_json()["action"] for one in found)
    return [(one.ranks, one.causes[0].key) for one in found]


def test_a_rank_whose_sampler_has_another_seed_is_named() -> None:
    assert told("0 3 768 0 2", "1 3 768 7 2", "2 3 768 0 2") == [((1,), "shuffle_seed")]


def test_seeds_of_each_ranks_own_are_everybodys() -> None:
    assert told("0 3 768 0 2", "1 3 768 7 2", "2 3 768 14 2") == [((0, 1, 2), "shuffle_seed")]


def test_an_epoch_that_was_not_set_on_one_rank_is_told() -> None:
    assert told("0 3 768 0 2", "1 3 768 0 2", "2 3 768 0 0") == [((2,), "shuffle_epoch")]


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        (("0 3 768 0 2", "1 3 768 0 2", "2 3 768 0 2"), (9, 9, 9)),
        (("0 3 768 0 2", "1 3 768 0 2", "2 3 768 0 1"), (9, 9, 5)),  # it has not begun its pass yet
        (("0 1 256 0 2", "0 1 256 7 2", "0 1 256 9 2"), (9, 9, 9)),  # each has a dataset of its own
        (("0 3 768 0 2", "1 3 500 7 2", "2 3 768 0 2"), (9, 9, 9)),  # and so here
        (("0 3 768 0 2", "", "2 3 768 7 2"), (9, 9, 9)),
        (("0 3 768 0 2", "1 3 768", "2 3 768 7 2"), (9, 9, 9)),
    ],
)
def test_what_is_one_order_or_not_known_to_be_two_is_quiet(facts: tuple[str, ...], steps: tuple[int, ...]) -> None:
    assert told(*facts, steps=steps) == []
