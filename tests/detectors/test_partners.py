"""Ranks that wait for each other in send and recv: the slow stage is named, and never who waits for it."""

import random

import pytest
from tests.detectors.pipeline import Pipelines, slow_stage, stage, times
from tests.detectors.states import at

from diagd.daemon.detectors import partners
from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.slowness import pace_of

CHECK = at("check", "/job/train.py", 20)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer"])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_the_stage_whose_own_work_takes_longer_is_the_straggler(rank: int, phase: str, norm: bool) -> None:
    training = Pipelines(4, norm=norm).goes(10, stage).seen(rank, CHECK)
    found = training.goes(8, slow_stage(rank, phase, 0.06, cpu=0.102)).finds()
    assert (found.kind, found.ranks, found.severity) == ("slow.straggler", (rank,), Severity.WARNING)
    assert found.waiting_ranks == tuple(r for r in range(4) if r != rank)
    assert found.locations[0].frame == CHECK


def test_it_is_said_who_waits_for_it_and_where() -> None:
    found = Pipelines(3).goes(10, stage).goes(8, slow_stage(1, "forward", 0.06)).finds()
    said = {(e.rank, e.what.partition(" in ")[2]) for e in found.causes[0].evidence[:2]}
    assert said == {(2, "RECV from rank 1"), (0, "SEND to rank 1")}


def test_a_stage_whose_input_comes_late_is_starved_not_slow() -> None:
    found = Pipelines(3).goes(10, stage).goes(8, slow_stage(0, "data", 0.06)).finds()
    assert (found.kind, found.ranks) == ("slow.data", (0,))


def test_a_host_that_holds_a_stage_up_is_named() -> None:
    found = Pipelines(3).goes(10, stage).goes(8, slow_stage(2, "forward", 0.06, run_delay_s=0.05)).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("slow.host", (2,), "contention")


def test_a_stage_that_computes_more_and_so_waits_more_for_a_shared_cpu_is_slow_itself() -> None:
    own = slow_stage(1, "backward", 0.06, cpu=0.072, run_delay_s=0.028)
    found = Pipelines(3).goes(10, stage).goes(8, own).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (1,))


def test_a_stage_that_computes_more_where_the_machine_became_crowded_for_all_is_slow_itself() -> None:
    """It has waited more for a CPU since, but no more for each second that it computes than the others do."""

    def crowded(rank: int, step: int) -> dict[str, float]:
        work = slow_stage(1, "forward", 0.2, cpu=0.109)(rank, step)
        return {**work, "forward": work["forward"] + 0.084, "run_delay_s": 2 * work["cpu"]}

    found = Pipelines(3).goes(10, stage).goes(8, crowded).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (1,))


def test_of_two_pipelines_the_slow_stage_is_told_from_the_stage_that_waits_for_it_and_from_its_replica() -> None:
    training = Pipelines(4, depth=2, replicas=True).goes(10, stage)
    found = training.goes(8, slow_stage(1, "backward", 0.06, cpu=0.102)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (1,))


def test_a_stage_that_is_slower_than_its_replica_from_the_first_step_on_needs_no_better_past() -> None:
    found = Pipelines(6, depth=3, replicas=True).goes(14, slow_stage(4, "forward", 0.06)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (4,))


# --- what is no fault, or not known


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("rank", "phase"), [(2, "forward"), (0, "backward"), (3, "optimizer")])
def test_unequal_stages_that_stay_as_they_are_are_no_fault(rank: int, phase: str, norm: bool) -> None:
    training = Pipelines(4, norm=norm)
    for _ in range(12):
        assert training.goes(2, slow_stage(rank, phase, 0.1)).find() == ()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_longer_batches_in_all_stages_are_no_fault(world: int) -> None:
    training = Pipelines(world, norm=True).goes(10, stage)
    for _ in range(6):
        assert training.goes(2, times(2)).find() == ()


def test_longer_batches_make_the_largest_stage_grow_most_and_are_no_fault() -> None:
    def largest(rank: int, step: int) -> dict[str, float]:
        return times(4 if rank == 3 else 1)(rank, step)

    def longer(rank: int, step: int) -> dict[str, float]:
        return {name: 1.8 * s for name, s in largest(rank, step).items()}

    training = Pipelines(4).goes(10, largest)
    for _ in range(6):
        assert training.goes(2, longer).find() == ()


def test_where_most_stages_take_longer_there_is_more_to_do_for_them() -> None:
    training = Pipelines(4).goes(10, stage)
    for _ in range(6):
        assert training.goes(2, lambda rank, step: times(3 if rank else 1)(rank, step)).find() == ()


def test_waits_that_grow_while_nobody_works_longer_are_laid_to_no_one_without_more_evidence() -> None:
    training = Pipelines(4, norm=True).goes(10, stage).linked(lambda sender, receiver: 0.004)
    for _ in range(6):
        assert training.goes(2, stage).find() == ()


def test_one_long_pause_of_a_stage_is_no_straggler() -> None:
    training = Pipelines(3).goes(10, times(0.9)).goes(2, stage).goes(0.1, slow_stage(1, "forward", 5.0))
    for _ in range(16):
        assert training.goes(0.5, stage).find() == ()


def test_a_stage_that_saves_now_and_then_is_no_straggler_and_no_slow_link() -> None:
    training = Pipelines(3).goes(10, stage)
    for _ in range(20):
        assert training.goes(1, slow_stage(0, "checkpoint", 1.0, every=40)).find() == ()


def test_stages_of_random_length_are_nobodys_fault() -> None:
    chance = random.Random(5)

    def own(rank: int, step: int) -> dict[str, float]:
        return {**stage(rank, step), "forward": 0.016 + chance.random() * 0.03}

    training = Pipelines(4, norm=True).goes(8, own)
    for _ in range(20):
        assert training.goes(1, own).find() == ()


def test_warm_up_is_no_pace_to_keep() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return {**stage(rank, step), "forward": 3.0 if step == 0 and rank == 1 else 0.016}

    assert Pipelines(3).goes(12, own).find() == ()


def test_a_stage_that_recovers_is_no_longer_spoken_of() -> None:
    training = Pipelines(3).goes(10, stage).goes(8, slow_stage(1, "forward", 0.06))
    assert training.find()
    assert training.goes(8, stage).find() == ()


def test_nobody_is_blamed_where_some_waits_were_not_seen() -> None:
    training = Pipelines(3).goes(10, stage).goes(8, slow_stage(1, "forward", 0.06))
    assert training.find()
    for placed in training.ranks:
        placed.held["operations_lost"] = 0.0
    training.ranks[2].held["operations_lost"] = 40.0
    assert training.goes(0.6, slow_stage(1, "forward", 0.06)).find() == ()


def test_nobody_is_blamed_on_a_device_whose_waits_the_thread_does_not_see() -> None:
    training = Pipelines(3)
    training.backend = "nccl"
    assert training.goes(10, stage).goes(8, slow_stage(1, "forward", 0.06)).find() == ()


def test_a_wait_for_a_replica_that_only_c_sees_is_no_work_of_its_own() -> None:
    training = Pipelines(4, depth=2, replicas=True, in_backward=True).goes(10, stage)
    found = training.goes(8, slow_stage(1, "backward", 0.06, cpu=0.102)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (1,))


def test_work_that_nobody_waits_for_is_no_reason() -> None:
    training = Pipelines(3).goes(10, stage).goes(8, slow_stage(1, "forward", 0.06))
    steps, parts = pace_of(training.state), partners.Parts(training.state)
    assert partners.slower(training.state, steps, parts) is not None
    steps.now.update({rank: steps.usual[rank] for rank in (0, 2)})
    assert partners.slower(training.state, steps, parts) is None


def test_long_steps_of_a_pipeline_need_as_many_of_them() -> None:
    training = Pipelines(3).goes(80, times(20))
    found = training.goes(60, lambda rank, step: times(60 if rank == 1 else 20)(rank, step)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (1,))
