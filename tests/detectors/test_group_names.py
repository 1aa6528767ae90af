"""Smaller groups are told with their members."""

import pytest
from tests.detectors.states import Job, job

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.group_names import with_members
from diagd.daemon.state.model import Group


def told(made: Job, text: str, *ranks: int, kind: str = "hang.rank_missing") -> str:
    made.report()
    return with_members(made.state, Finding(kind, Severity.CRITICAL, ranks, summary=text, causes=())).summary


def described(text: str) -> Job:
    made = job(4, groups={"3": (1, 3)})
    for rank in (1, 3):
        one = made.ranks[rank]
        one.detail = one.detail.with_(groups=(Group("0", (0, 1, 2, 3)), Group("3", (1, 3), text)))
    return made


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "ranks 1,3"), ("undefined", "ranks 1,3"), ("mesh_dp", "dp: ranks 1,3"), ("experts", "experts: ranks 1,3")],
)
def test_a_smaller_group_is_told_once_with_its_members_and_its_own_name(text: str, said: str) -> None:
    found = told(described(text), "rank 1 in X #4 of group 3; rank 3 in Y #5 of group 3 for group 0.", 1, 3)
    assert found == f"rank 1 in X #4 of group 3 ({said}); rank 3 in Y #5 of group 3 for group 0."


def test_what_different_ranks_mean_by_a_number_is_not_told() -> None:
    made = described("")
    one = made.ranks[3]
    one.detail = one.detail.with_(groups=(Group("0", (0, 1, 2, 3)), Group("3", (2, 3))))
    assert told(made, "in X of group 3.", 1, 3) == "in X of group 3."
    assert told(made, "in X of group 3.", 1) == "in X of group 3 (ranks 1,3)."


def test_of_a_group_with_many_members_their_number_is_told() -> None:
    made = job(40, groups={"7": tuple(range(0, 40, 2))})
    assert told(made, "in X of group 7", 0) == "in X of group 7 (20 ranks)"


def test_groups_of_parameters_are_none_of_ranks() -> None:
    assert told(described(""), "the rate of group 3 is 0", 1, kind="training.lr_fault") == "the rate of group 3 is 0"
