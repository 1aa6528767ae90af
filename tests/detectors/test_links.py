"""A slow link is the edge that slow pairs of ranks share, where both ranks were there and other pairs are quick."""

from dataclasses import replace

import pytest
from tests.detectors.pipeline import Pipelines, slow_between, slow_stage, stage

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.state.model import Group, Operation


def test_the_only_slow_pair_of_a_pipeline_is_the_link_and_none_of_its_ranks_a_straggler() -> None:
    found = Pipelines(4).goes(10, stage).linked(slow_between((1, 2))).goes(10, stage).finds()
    assert (found.kind, found.ranks, found.severity) == ("slow.collective", (1, 2), Severity.WARNING)
    assert (found.waiting_ranks, found.causes[0].key) == ((0, 3), "link")
    assert "between rank 1 and rank 2" in found.summary
    assert "not known" not in found.summary


def test_a_link_that_was_slow_from_the_beginning_needs_no_better_past() -> None:
    found = Pipelines(5, norm=True).linked(slow_between((1, 2))).goes(14, stage).finds()
    assert (found.kind, found.ranks) == ("slow.collective", (1, 2))


def test_between_hosts_an_end_without_another_pair_is_said_not_to_be_told_from_the_link() -> None:
    found = Pipelines(4).on("abcd").linked(slow_between((2, 3))).goes(14, stage).finds()
    assert (found.kind, found.ranks) == ("slow.collective", (2, 3))
    assert "whether it is the link or that end is not known" in found.summary


def test_within_a_host_an_end_without_another_pair_may_as_well_be_slow_itself() -> None:
    assert Pipelines(4).linked(slow_between((2, 3))).goes(14, stage).find() == ()


def test_all_pairs_of_two_hosts_name_these_hosts_with_the_ranks_on_both_ends() -> None:
    training = Pipelines(9, depth=3).on("abcabcabc").linked(slow_between((0, 1), (3, 4), (6, 7)))
    found = training.goes(14, stage).finds()
    assert (found.kind, found.ranks) == ("slow.collective", (0, 1, 3, 4, 6, 7))
    assert "between the hosts a and b" in found.summary


def test_all_pairs_of_one_rank_name_this_rank() -> None:
    found = Pipelines(5).linked(slow_between((1, 2), (2, 3))).goes(14, stage).finds()
    assert (found.kind, found.ranks) == ("slow.collective", (2,))


# --- what is no slow link


def test_slow_pairs_that_share_no_edge_say_nothing_of_a_link() -> None:
    assert Pipelines(6).linked(slow_between((0, 1), (3, 4))).goes(14, stage).find() == ()


def test_a_pair_of_two_hosts_is_no_slow_link_only_because_others_share_a_host() -> None:
    assert Pipelines(4).on("aabb").linked(slow_between((1, 2))).goes(14, stage).find() == ()


def test_equally_slow_links_are_no_fault_of_one() -> None:
    assert Pipelines(4).linked(lambda a, b: 0.02).goes(14, stage).find() == ()


def test_a_slow_stage_is_no_slow_link() -> None:
    found = Pipelines(4).goes(10, stage).goes(10, slow_stage(1, "forward", 0.3)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (1,))


def test_larger_messages_take_longer_with_good_reason() -> None:
    training = Pipelines(4).linked(slow_between((1, 2)))
    training.larger = {(1, 2)}
    assert training.goes(14, stage).find() == ()


def test_a_wait_of_ranks_that_work_between_issue_and_wait_is_no_transfer() -> None:
    training = Pipelines(4).linked(slow_between((1, 2))).goes(14, stage)
    assert training.find()
    for pace in training.state.paces.values():
        pace.passed.update({key: replace(op, held_s=min(op.held_s, 0.001)) for key, op in pace.passed.items()})
    for placed in training.ranks:
        placed.passed = []
    assert training.find() == ()


def test_where_a_rank_waits_for_a_cpu_the_link_is_not_blamed() -> None:
    def starved(rank: int, step: int) -> dict[str, float]:
        return {**stage(rank, step), "run_delay_s": 0.1 if rank == 2 else 0.0}

    training = Pipelines(4).linked(slow_between((1, 2))).goes(14, starved)
    assert [f for f in training.find() if f.kind == "slow.collective"] == []


# --- operations of groups of two


@pytest.mark.parametrize("both_there", [True, False])
def test_operations_of_a_group_of_two_are_long_only_from_when_both_have_come(both_there: bool) -> None:
    training = Pipelines(4, depth=1)
    pairs = {f"p{a}{b}": (a, b) for a, b in ((0, 1), (1, 2), (2, 3), (0, 3))}
    training.groups = (*training.groups, *(Group(name, ranks) for name, ranks in pairs.items()))
    for placed in training.ranks:
        placed.passed = []
    for seq in range(1, 40):
        at_s = training.now_s + 0.1 * seq
        for name, ranks in pairs.items():
            long_s = 0.03 if name == "p12" else 0.001
            for rank in ranks:
                late_s = 0.0 if both_there or rank == ranks[0] else long_s - 0.0005
                op = Operation("ALLREDUCE", name, seq, numel=1024, dtype="float32", entered_s=at_s + late_s,
                               returned_s=at_s + long_s, held_s=long_s - late_s)  # fmt: skip
                training.ranks[rank].passed.append(op)
    found = training.goes(5, lambda rank, step: {**stage(rank, step), "collective": 0.02}).finds()
    assert (found.kind, found.ranks) == (("slow.collective", (1, 2)) if both_there else ("slow.straggler", (2,)))
