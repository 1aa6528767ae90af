"""Autocast that no longer applies, or not on all ranks; and what looks like it."""

from collections.abc import Sequence

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import job

from diagd.daemon.detectors.casting import autocast_off
from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.state.tensors import LedgerNews, TensorInfo

Ranks = Sequence[tuple[Sequence[float], Sequence[float]]]


def find(*ranks: tuple[Sequence[float], Sequence[float]], every: int = 8) -> list[Finding]:
    """What is said of ranks that were for this in each step, and of which so much ran under it at every 8th."""
    made = job(len(ranks))
    for rank, (on, share) in enumerate(ranks):
        signals(made.state, rank, "autocast/on", range(1, len(on) + 1), on)
        signals(made.state, rank, "autocast/share", range(2, 2 + every * len(share), every), share)
    return list(autocast_off(scene_of(made.state)))


def test_a_region_that_is_entered_no_more_is_told_with_the_first_step_without_it() -> None:
    (found,) = find(([1] * 60 + [0] * 20, [1] * 7 + [0] * 3))
    assert (found.kind, found.ranks, found.step, found.names) == ("precision.autocast_off", (0,), 58, ("autocast",))


def test_a_second_region_around_all_modules_that_switches_it_off_is_seen_by_what_runs_under_it() -> None:
    (found,) = find(([1] * 80, [0.9] * 6 + [0.0] * 4), ([1] * 80, [0.9] * 6 + [0.0] * 4))
    assert (found.ranks, found.step, found.causes[0].key) == ((0, 1), 50, "region")


def test_a_rank_is_named_alone_only_once_others_are_known_to_go_on() -> None:
    stopped, goes_on = ([1] * 80, [0.9] * 6 + [0.0] * 3), ([1] * 80, [0.9] * 9)
    (found,) = find(goes_on, stopped)
    assert (found.ranks, found.causes[0].key) == ((1,), "rank")
    assert find(([1] * 80, [0.9] * 6), stopped) == []


def test_a_rank_that_never_is_under_it_is_named_beside_one_that_is() -> None:
    (found,) = find(([1] * 20, [1.0] * 3), ([0] * 20, [0.0] * 3), ([1] * 20, [1.0] * 3))
    assert (found.kind, found.ranks) == ("precision.autocast_off", (1,))


def test_ranks_that_cast_to_other_dtypes_mismatch() -> None:
    (found,) = find(([1] * 20, [1.0] * 3), ([2] * 20, [1.0] * 3), ([1] * 20, [1.0] * 3))
    assert (found.kind, found.ranks, found.step) == ("precision.dtype_mismatch", (1,), 1)


def test_ranks_that_train_different_models_may_differ() -> None:
    made = job(2)
    for rank, on in enumerate((1, 0)):
        signals(made.state, rank, "autocast/on", range(1, 21), [on] * 20)
    assert len(list(autocast_off(scene_of(made.state)))) == 1
    stages = [LedgerNews(rank, 100 + rank, 0, (TensorInfo(f"Stage{rank}.weight"),)) for rank in range(2)]
    made.state.tensors.apply(stages, 2)
    assert list(autocast_off(scene_of(made.state))) == []


HEALTHY: dict[str, Ranks] = {
    "always": [([1] * 80, [1.0] * 9)],
    "never": [([0] * 80, [0.0] * 9), ([0] * 80, [0.0] * 9)],
    "after a warm-up": [([0] * 40 + [1] * 40, [0.0] * 5 + [1.0] * 4)],
    "by turns, as two models": [([1, 0] * 40, [1.0, 0.0] * 4)],
    "around a small part": [([1] * 80, [0.2] * 9)],
    "a part that is not used in some steps": [([1] * 80, [0.2, 0.9, 0.1, 0.4, 0.0, 0.0])],
    "a few steps without": [([1] * 60 + [0] * 5, [1.0] * 8)],
    "only the first steps known": [([1] * 8 + [0] * 3, [1.0])],
    "one rank not seen yet": [([1] * 20, [1.0] * 3), ([], [])],
}


@pytest.mark.parametrize("ranks", HEALTHY.values(), ids=HEALTHY)
def test_of_other_trainings_nothing_is_said(ranks: Ranks) -> None:
    assert find(*ranks) == []


@pytest.mark.parametrize(("again", "step"), [
    ([0.0, 0.0, 0.0], 10),
    ([1.0, 0.0, 0.0], 18),
    ([1.0, 1.0, 0.0], None),
    ([1.0, 1.0, 1.0], None),
    ([0.5, 0.5, 0.5], None),  # an island that is meant to be
])  # fmt: skip
def test_what_is_run_again_without_it_is_told(again: list[float], step: int | None) -> None:
    made = job(2)
    for rank in range(2):
        signals(made.state, rank, "autocast/again", range(10, 10 + 8 * len(again), 8), again)
    found = list(autocast_off(scene_of(made.state)))
    assert [(f.kind, f.ranks, f.step, f.causes[0].key) for f in found] == (
        [("precision.autocast_off", (0, 1), step, "recomputed")] if step is not None else []
    )


@pytest.mark.parametrize(
    ("steps", "since"),
    [(range(41, 81), 41), ([*range(2, 4), *range(60, 81)], 60), (range(41, 70), None), (range(74, 81), None)],
)
def test_a_region_in_which_it_is_switched_off_and_left_so_is_told_with_its_place(
    steps: Sequence[int], since: int | None
) -> None:
    made = job(2)
    for rank in range(2):
        signals(made.state, rank, "autocast/on", range(1, 81), [1] * 80)
        signals(made.state, rank, "autocast/cut", steps, [1] * len(steps))
    made.state.signals.put_fact(1, "autocast/cut", 42, "/job/train.py\t18\tassign")
    found = list(autocast_off(scene_of(made.state)))
    assert [(one.ranks, one.step, one.causes[0].key) for one in found] == (
        [] if since is None else [((0, 1), since, "cut")]
    )
    if found:
        assert "assign (train.py:18)" in found[0].summary
        assert {place.frame.line for place in found[0].locations} == {18}


LOOKED_AT = [3, 4, 13, 25, 41, 65, 97, 98, 99, 100, 113]


def lost(shares: Sequence[float], off: int = 0, cut: int = 0) -> list[Finding]:
    """What is said of two ranks of whose modules so much no longer ran under it at each look."""
    made = job(2)
    for rank in range(2):
        signals(made.state, rank, "autocast/on", range(1, 114), [1.0] * (113 - off) + [0.0] * off)
        signals(made.state, rank, "autocast/lost", LOOKED_AT[: len(shares)], shares)
        signals(made.state, rank, "autocast/cut", range(114 - cut, 114), [1] * cut)
    made.state.signals.put_fact(1, "autocast/lost", 98, "/job/train.py\t64\tforward")
    made.state.signals.put_fact(1, "autocast/lost/of", 98, "16\tNet.blocks.0.f.0,Net.blocks.0.f.2")
    return list(autocast_off(scene_of(made.state)))


def test_modules_that_ran_under_it_until_a_region_inside_switches_it_off_are_told_with_the_place() -> None:
    (found,) = lost([0, 0, 0, 0, 0, 0, 0.9, 0.9, 0.9])
    assert (found.kind, found.ranks, found.step) == ("precision.autocast_off", (0, 1), 97)
    assert found.names[:2] == ("autocast", "Net.blocks.0.f.0")
    assert "and 14 more" in found.summary
    assert {place.frame.line for place in found.locations} == {64}


@pytest.mark.parametrize("shares", [
    [0, 0, 0, 0, 0, 0, 0.9, 0, 0, 0, 0.9],  # every 16th step alone, as a penalty in full precision
    [0, 0, 0, 0, 0, 0, 0.9, 0.9],  # not long enough
    [0, 0.9, 0.9, 0, 0.9, 0, 0.9, 0.9, 0.9],  # to and fro
    [0.9] * 11,  # ever since it was looked at
    [0, 0, 0, 0, 0, 0, 0.02, 0.02, 0.02],  # one of fifty
])  # fmt: skip
def test_of_other_modules_without_it_nothing_is_said(shares: Sequence[float]) -> None:
    assert lost(shares) == []


@pytest.mark.parametrize(("off", "cut", "keys"), [
    (5, 0, []), (23, 0, ["region"]), (0, 5, []), (0, 23, ["cut"]),
])  # fmt: skip
def test_modules_without_it_are_no_matter_of_their_own_where_all_are_or_where_it_was_left_off(
    off: int, cut: int, keys: list[str]
) -> None:
    found = lost([0, 0, 0, 0, 0, 0, 0.9, 0.9, 0.9], off, cut)
    assert [one.causes[0].key for one in found] == keys
    assert not any("Net.blocks" in one.summary for one in found)
