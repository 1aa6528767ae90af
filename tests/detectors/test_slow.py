"""Progress below what the job has shown: one rank, all ranks, and what is no fault at all."""

import random

import pytest
from tests.detectors.states import at, job
from tests.detectors.training import Own, Training, all_with_more, usual, with_more

from diagd.daemon.detectors import slow_all
from diagd.daemon.detectors.attention import attention
from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.registry import detect
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.detectors.slowness import suspects
from diagd.daemon.state.model import Detail, Facts, Frame, Operation, Status
from diagd.daemon.state.pace import Pace

TRAIN = at("train_step", "/job/train.py", 40)
DECODE = at("decode", "/job/data.py", 12)


# --- one rank


@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_a_rank_whose_own_work_takes_longer_is_a_straggler_though_all_steps_are_equally_long(world: int) -> None:
    found = Training(world).goes(10).goes(8, with_more(1, "forward", 0.03, cpu=0.068)).finds()
    assert (found.kind, found.ranks, found.severity) == ("slow.straggler", (1,), Severity.WARNING)
    assert found.waiting_ranks == tuple(r for r in range(world) if r != 1)
    assert "backward takes longer" in found.summary


def test_a_straggler_from_the_first_step_on_needs_no_better_past() -> None:
    found = Training(4).goes(12, with_more(2, "forward", 0.05)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (2,))


def test_one_that_is_slow_only_in_backward_shows_by_when_it_arrives() -> None:
    found = Training(2).goes(6).goes(8, with_more(0, "backward", 0.05, cpu=0.088)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (0,))


def test_the_buckets_of_one_backward_pass_carry_one_delay_not_many() -> None:
    one = Training(2).goes(6).goes(8, with_more(0, "forward", 0.02), buckets=1).finds()
    many = Training(2).goes(6).goes(8, with_more(0, "forward", 0.02), buckets=6).finds()
    share = [f.summary.partition("wait ")[2].partition(" %")[0] for f in (one, many)]
    assert abs(int(share[0]) - int(share[1])) <= 2


def test_several_slow_ranks_are_named_together() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return with_more(rank, "forward", 0.05)(rank, step) if rank in (4, 5) else usual(rank, step)

    found = Training(8).goes(8).goes(8, own).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (4, 5))
    assert "for them, because their own work" in found.summary
    assert found.causes[0].text.startswith("its own work")


@pytest.mark.parametrize("before", [8, 0])
def test_most_ranks_are_slow_where_they_were_not_and_the_rest_are_as_ever(before: int) -> None:
    """Where it was so from the beginning, it is the one that is quick."""

    def own(rank: int, step: int) -> dict[str, float]:
        return (
            with_more(rank, "forward", 0.1 if (rank + step) % 2 else 0.105)(rank, step) if rank != 1 else usual(1, step)
        )

    training = Training(3)
    if before:
        training.goes(before)
    found = [(one.kind, one.ranks) for one in training.goes(10, own).find()]
    assert found == ([("slow.straggler", (0, 2))] if before else [])


def test_most_ranks_are_not_slow_where_nothing_of_their_own_has_grown() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        more = with_more(rank, "backward", 0.1 if (rank + step) % 2 else 0.105)  # in which they may wait
        return usual(rank, step) if rank == 1 else more(rank, step)

    assert not [one for one in Training(3).goes(8).goes(10, own).find() if one.ranks == (0, 2)]


def test_most_ranks_are_not_slow_where_all_have_more_to_do() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return with_more(rank, "forward", 0.04 if rank == 1 else 0.1)(rank, step)

    assert not [one for one in Training(3).goes(8).goes(10, own).find() if one.ranks == (0, 2)]


def test_a_rank_that_is_slow_in_bursts_is_named_and_said_to_be() -> None:
    found = Training(4).goes(8).goes(25, with_more(3, "forward", 0.6, every=30)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (3,))
    assert "in bursts" in found.summary


def test_a_rank_whose_input_comes_late_is_starved_not_slow() -> None:
    training = Training(4).goes(8).seen(2, TRAIN).seen(2, DECODE, role="worker")
    found = training.goes(8, with_more(2, "data", 0.06)).finds()
    assert (found.kind, found.ranks, found.names) == ("slow.data", (2,), ("worker",))
    assert found.locations[0].frame == DECODE


@pytest.mark.parametrize(
    ("sign", "amount", "key", "said"),
    [("run_delay_s", 0.045, "contention", "run delay: 45 ms a step more than the others"),
     ("throttled_s", 0.05, "throttled", "throttled: 50 ms a step more"),
     ("garbage_s", 0.05, "garbage", "garbage: 50 ms a step more"),
     ("major_faults", 500.0, "paging", "500 pages a step more than the others had to come from disk or swap")],
)  # fmt: skip
def test_what_holds_the_host_up_is_named_where_it_is_seen(sign: str, amount: float, key: str, said: str) -> None:
    found = Training(4).goes(8).goes(8, with_more(1, "forward", 0.05, **{sign: amount})).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("slow.host", (1,), key)
    assert [e.what for e in found.causes[0].evidence if e.what.startswith(said)]


@pytest.mark.parametrize(
    ("who", "kind", "key", "words"),
    [("others", "slow.host", "contention", "that other processes use"),
     ("workers", "slow.data", "workers", "the job itself uses, most of all its data workers"),
     ("helpers", "slow.host", "oversubscribed", "its own threads and child processes"),
     ("mains", "slow.host", "oversubscribed", "the other ranks")],
)  # fmt: skip
def test_who_has_the_cpu_that_a_rank_waits_for_is_said(who: str, kind: str, key: str, words: str) -> None:
    before = {"others": 0.3, "workers": 0.4, "helpers": 0.3, "mains": 0.3}
    training = Training(4).crowded(0, 1, 2, 3, **before).goes(8).crowded(1, **{**before, who: 1.6})
    found = training.goes(8, with_more(1, "forward", 0.05, run_delay_s=0.045)).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == (kind, (1,), key)
    assert words in found.summary
    assert found.names == (("worker",) if who == "workers" else ())
    assert sum(" 1.6" in evidence.what for evidence in found.causes[0].evidence) == 1


def test_where_nobody_uses_more_than_before_it_is_what_uses_most() -> None:
    training = Training(2).crowded(0, 1, others=0.2, workers=1.5, mains=0.5).goes(8)
    found = training.goes(8, all_with_more("forward", 0.05, run_delay_s=0.045)).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("slow.data", (0, 1), "workers")


def test_others_that_came_are_named_though_the_job_itself_uses_more() -> None:
    training = Training(2).crowded(0, 1, others=0.1, workers=1.2, mains=0.6).goes(8)
    training.crowded(0, 1, others=0.6, workers=0.9, mains=0.4)
    found = training.goes(8, all_with_more("forward", 0.05, run_delay_s=0.045)).finds()
    assert (found.kind, found.causes[0].key) == ("slow.host", "contention")


def test_who_computes_more_on_a_machine_that_always_was_crowded_is_slow_by_itself() -> None:
    """It waits more for a CPU, but no more for each second that it computes."""

    def own(rank: int, step: int, more: float = 0.0) -> dict[str, float]:
        work = usual(rank, step)
        return {**work, "forward": work["forward"] + 2.2 * more + 0.04, "cpu": 0.038 + more,
                "run_delay_s": 1.2 * (0.038 + more)}  # fmt: skip

    training = Training(2).crowded(0, 1, others=1.5).goes(8, own)
    found = training.goes(8, lambda rank, step: own(rank, step, 0.05 if rank else 0.0)).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (1,))


def test_of_an_unknown_crowd_nobody_is_blamed() -> None:
    found = Training(2).goes(8).goes(8, all_with_more("forward", 0.05, run_delay_s=0.045)).finds()
    assert (found.kind, found.causes[0].key) == ("slow.host", "contention")
    assert "who uses it is not known" in found.summary


def test_a_host_that_holds_all_ranks_up_alike_does_not_excuse_one() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return {**with_more(1, "forward", 0.05)(rank, step), "run_delay_s": 0.045}

    assert Training(4).goes(8, own).finds().kind == "slow.straggler"


def test_the_place_is_where_it_was_seen_most_often() -> None:
    training = Training(2).goes(8).seen(1, at("collate", "/job/data.py", 7), TRAIN)
    found = training.goes(8, with_more(1, "forward", 0.05)).finds()
    assert (found.locations[0].rank, found.locations[0].frame.function) == (1, "collate")
    assert "collate" in found.summary


def test_samples_count_as_often_as_they_were_seen() -> None:
    training = Training(2).goes(8).seen(1, at("once", "/job/data.py", 7), TRAIN)
    training.seen(1, at("mostly", "/job/data.py", 9), TRAIN, role="sample", times=20)
    assert training.goes(8, with_more(1, "forward", 0.05)).finds().locations[0].frame.function == "mostly"


# --- all ranks


def test_input_that_comes_late_on_all_ranks_is_held_against_what_they_have_shown() -> None:
    found = Training(4).goes(8).goes(8, all_with_more("data", 0.06)).finds()
    assert (found.kind, found.ranks) == ("slow.data", (0, 1, 2, 3))
    assert "ms were shown before" in found.summary


@pytest.mark.parametrize(("least", "ranks"), [(0.04, (0, 1)), (0.015, (1,))])
def test_one_that_waits_a_little_longer_for_its_input_than_all_others_is_not_named_alone(
    least: float, ranks: tuple[int, ...]
) -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return {**usual(rank, step), "data": usual(rank, step)["data"] + (0.065 if rank else least)}

    found = Training(2).goes(8).goes(8, own).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("slow.data", ranks, () if len(ranks) > 1 else (0,))


def test_one_fast_window_at_the_beginning_is_remembered() -> None:
    pace, step = Pace(), 20
    for second in range(12):
        step += 50 if second == 1 else 5
        total = {"phase_s|forward": float(second)}
        pace.note(Facts(0, step=step, extra=total), 1000.0 + second)
    best = pace.baseline()
    assert best is not None
    assert best.step_s == pytest.approx(0.02)


def test_what_comes_after_the_last_step_belongs_to_none() -> None:
    """A training that is over is not slow, however long its process takes to end."""
    pace, step = Pace(), 20
    for second in range(24):
        step += 10 if second < 12 else 0
        total = {"phase_s|forward": float(second)}
        pace.note(Facts(0, step=step, extra=total), 1000.0 + second)
    now = pace.window(3.0, 8)
    assert now is not None
    assert now.step_s == pytest.approx(0.1)
    assert pace.read_s == 1023.0


def test_batches_that_were_ready_before_the_first_step_are_no_pace_to_keep() -> None:
    training = Training(2).goes(0.6)
    for _ in range(12):
        assert training.goes(1, all_with_more("data", 0.06)).find() == ()


def test_a_job_that_never_was_faster_is_not_slow() -> None:
    assert Training(4).goes(20, all_with_more("data", 0.06)).find() == ()


def test_communication_that_takes_longer_while_all_arrive_together_is_slow_itself() -> None:
    found = Training(4).goes(8).goes(8, collective_s=0.06).finds()
    assert (found.kind, found.ranks) == ("slow.collective", (0, 1, 2, 3))


@pytest.mark.parametrize(("met", "worked", "said"), [(30, 0.0, True), (10, 0.0, False), (30, 0.05, False)])
def test_what_a_wrapper_sends_in_each_forward_is_communication_too(met: int, worked: float, said: bool) -> None:
    """As DDP its buffers: it is issued from C++, and its time is in a phase of the rank's own."""
    sends = Frame("_distributed_broadcast_coalesced", "/lib/torch/nn/parallel/distributed.py", 2363, user=False)
    training = Training(2).goes(8)
    for rank in range(2):
        training.seen(rank, sends, TRAIN, role="rank", times=met).seen(rank, TRAIN, role="sample", times=40 - met)
    found = training.goes(8, all_with_more("forward", 0.08, cpu=0.038 + worked)).find()
    assert [f.kind for f in found] == (["slow.collective"] if said else [])


@pytest.mark.parametrize(("met", "elements", "kind"), [
    (30, 5_000_000, "slow.collective"), (30, 2_000, "slow.host"), (10, 5_000_000, "slow.host"),
])  # fmt: skip
def test_ranks_that_pass_many_times_as_much_are_long_in_that_whoever_has_the_cpus_meanwhile(
    met: int, elements: int, kind: str
) -> None:
    """Who waits leaves the CPUs to others, and waits for one when its message has come."""
    sends = Frame("_distributed_broadcast_coalesced", "/lib/torch/nn/parallel/distributed.py", 2363, user=False)
    training = Training(2).crowded(0, 1, others=0.8)
    training.elements = 1_000
    training.goes(8).crowded(0, 1, others=1.4)
    training.elements = elements
    for rank in range(2):
        training.seen(rank, sends, TRAIN, role="rank", times=met).seen(rank, TRAIN, role="sample", times=40 - met)
    found = training.goes(8, all_with_more("forward", 0.08, cpu=0.068, run_delay_s=0.045)).finds()
    assert (found.kind, found.ranks) == (kind, (0, 1))
    assert ("5.0 million elements in a step where it was 1000" in found.summary) is (kind == "slow.collective")


@pytest.mark.parametrize(("phase", "more", "said"), [("collective", 0.013, True), ("forward", 0.04, False)])
def test_all_are_inside_operations_though_the_root_comes_out_of_them_last(phase: str, more: float, said: bool) -> None:
    """It sends to each of the others, and so is late for what follows without any work of its own."""
    inside = all_with_more("collective", 0.055)

    def root_is_last(rank: int, step: int) -> dict[str, float]:
        work = inside(rank, step)
        return {**work, phase: work.get(phase, 0.0) + more} if rank == 0 else work

    found = Training(3).goes(8).goes(8, root_is_last).find()
    assert ("slow.collective" in [f.kind for f in found]) is said


def test_a_long_pause_of_one_rank_in_its_own_work_is_no_slow_communication() -> None:
    """As an evaluation on rank 0, for which the others wait at a barrier: most ranks spend the time in operations."""

    def own(rank: int, step: int) -> dict[str, float]:
        return with_more(rank, "forward" if rank == 0 else "collective", 0.5)(rank, step)

    found = Training(3).goes(8).goes(8, own).find()
    assert all(one.kind != "slow.collective" for one in found)


@pytest.mark.parametrize(("steps", "others"), [(3, True), (60, False)])
def test_beside_a_rank_of_another_pace_it_is_not_known_that_all_come_together(steps: int, others: bool) -> None:
    """As an actor that plays rounds for learners, which wait for its games."""
    made = job(3).train(0, 1).passes(30.0)
    made.ranks[2].facts.step = steps
    assert slow_all._has_others(scene_of(made.passes(1.0).state), [0, 1]) is others


def test_where_the_ranks_own_work_takes_longer_too_the_communication_is_not_blamed() -> None:
    assert Training(4).goes(8).goes(8, all_with_more("data", 0.012), collective_s=0.016).find() == ()


@pytest.mark.parametrize("seconds", [0.05, 0.5])
def test_ranks_that_came_together_before_they_became_slow_do_not_show_slow_communication(seconds: float) -> None:
    training = Training(3).goes(20)
    training.closely = False
    assert training.goes(7, with_more(1, "other", seconds)).find() == ()
    training.closely = True
    assert training.goes(4, with_more(1, "other", seconds)).finds().kind == "slow.straggler"


def test_with_a_device_a_long_backward_pass_says_nothing_of_the_communication() -> None:
    assert Training(4, backend="nccl").goes(8).goes(8, collective_s=0.06).find() == ()


@pytest.mark.parametrize("sign", ["run_delay_s", "throttled_s"])
def test_a_host_that_slows_all_ranks_is_named(sign: str) -> None:
    found = Training(2).goes(8).goes(8, all_with_more("forward", 0.05, **{sign: 0.045})).finds()
    assert (found.kind, found.ranks) == ("slow.host", (0, 1))


def test_a_collector_that_takes_longer_for_want_of_a_cpu_is_not_what_holds_the_ranks_up() -> None:
    more = all_with_more("forward", 0.08, garbage_s=0.035, run_delay_s=0.07)
    assert Training(2).goes(8).goes(8, more).finds().causes[0].key == "contention"


def test_a_collector_that_is_also_kept_from_the_cpu_is_named() -> None:
    more = all_with_more("forward", 0.08, garbage_s=0.07, run_delay_s=0.04)
    assert Training(2).goes(8).goes(8, more).finds().causes[0].key == "garbage"


# --- what is no fault


@pytest.mark.parametrize("sign", ["garbage_s", "run_delay_s", "disk_wait_s"])
@pytest.mark.parametrize("pause", ["eval", "checkpoint"])
def test_what_holds_a_pause_up_does_not_explain_longer_steps(pause: str, sign: str) -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        work = all_with_more("forward", 0.02, cpu=0.058)(rank, step)
        return {**work, pause: 1.0, sign: 0.9} if step % 40 == 39 else work

    training = Training(2).goes(8)
    for _ in range(12):
        assert training.goes(1, own).find() == ()


def test_what_comes_after_the_last_step_is_no_part_of_it() -> None:
    training = Training(2).goes(8)
    for _ in range(8):
        training.now_s += 0.5
        for rank in training.ranks:
            rank.totals["forward"] += 0.5
            rank.totals["run_delay_s"] += 0.4
        assert training.find() == ()


def test_ranks_in_their_shutdown_are_not_slow() -> None:
    training = Training(2).goes(8).goes(8, all_with_more("forward", 0.05, run_delay_s=0.045))
    assert training.finds().kind == "slow.host"
    training.shutdown_s = training.now_s
    assert training.find() == ()


def test_operations_that_take_longer_where_ranks_are_kept_from_the_cpu_are_not_called_slow() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return {**usual(rank, step), "run_delay_s": 0.005}

    assert Training(3).goes(8).goes(8, own, collective_s=0.018).find() == ()


def test_longer_batches_on_all_ranks_are_no_fault() -> None:
    assert Training(4).goes(8).goes(8, all_with_more("forward", 0.05, cpu=0.088)).find() == ()


def test_ranks_that_are_late_by_turns_are_no_stragglers() -> None:
    chance = random.Random(7)

    def own(rank: int, step: int) -> dict[str, float]:
        work = usual(rank, step)
        return {**work, "forward": work["forward"] + chance.random() * 0.03}

    training = Training(4).goes(6, own)
    for _ in range(20):
        assert training.goes(2, own).find() == ()


@pytest.mark.parametrize("seed", range(6))
def test_batches_of_widely_random_length_on_two_ranks_make_neither_a_straggler(seed: int) -> None:
    chance = random.Random(seed)

    def own(rank: int, step: int) -> dict[str, float]:
        work = usual(rank, step)
        return {**work, "forward": work["forward"] + chance.lognormvariate(-4.0, 0.9) % 0.12}

    training = Training(2)
    for _ in range(60):
        assert training.goes(1, own, buckets=2).find() == ()


def test_a_straggler_among_batches_of_random_length_is_found_all_the_same() -> None:
    chance = random.Random(3)

    def own(rank: int, step: int) -> dict[str, float]:
        work = usual(rank, step)
        more = 0.03 if rank == 1 and step > 300 else 0.0
        return {**work, "forward": work["forward"] + chance.lognormvariate(-4.5, 0.6) % 0.1 + more}

    found = Training(2).goes(40, own).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (1,))


def test_a_small_steady_imbalance_is_no_fault() -> None:
    assert Training(4).goes(20, with_more(2, "forward", 0.004)).find() == ()


def test_one_slow_step_is_no_straggler() -> None:
    training = Training(4).goes(8).goes(0.1, with_more(2, "forward", 0.8))
    for _ in range(8):
        assert training.goes(1).find() == ()


@pytest.mark.parametrize("phase", ["eval", "checkpoint"])
def test_evaluation_and_checkpoints_of_all_ranks_are_no_part_of_a_step(phase: str) -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return {**usual(rank, step), phase: 1.0 if step % 50 == 49 else 0.0}

    training = Training(4).goes(6)
    for _ in range(20):
        assert training.goes(1, own).find() == ()


def test_rank_0_that_saves_now_and_then_is_no_straggler() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return {**usual(rank, step), "checkpoint": 1.0 if rank == 0 and step % 100 == 99 else 0.0}

    training = Training(4).goes(6)
    for _ in range(30):
        assert training.goes(1, own).find() == ()


def evaluating(seconds: dict[int, float]) -> Training:
    """Each ten steps all of three ranks evaluate, some of them for longer."""

    def own(rank: int, step: int) -> dict[str, float]:
        return {**usual(rank, step), "eval": seconds.get(rank, 0.3) if step % 10 == 9 else 0.0}

    return Training(3).goes(40, own)


def test_a_rank_that_takes_longer_over_what_all_evaluate_is_slow() -> None:
    training = evaluating({1: 0.9})
    found = training.finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("slow.straggler", (1,), (0, 2))
    assert "600 ms after the first" in found.causes[0].evidence[0].what
    assert suspects(training.state) == (1,)


@pytest.mark.parametrize("seconds", [{}, {0: 0.9}, {1: 0.9, 0: 0.0, 2: 0.0}, {1: 0.4}])
def test_a_rank_that_evaluates_alone_or_gathers_what_all_have_evaluated_or_is_hardly_longer_is_not(
    seconds: dict[int, float],
) -> None:
    assert evaluating(seconds).find() == ()


def test_a_rank_that_saves_alone_at_nearly_every_step_is_slow() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return {**usual(rank, step), "checkpoint": 0.06 if rank == 0 and step % 8 else 0.0, "disk_wait_s": 0.0}

    training = Training(3).goes(8)
    assert suspects(training.state) == ()
    found = training.goes(16, own).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("slow.straggler", (0,), (1, 2))
    assert suspects(training.state) == (0,)


def test_a_slow_first_step_is_no_baseline_and_no_fault() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return {**usual(rank, step), "forward": 3.0 if step == 0 else 0.015}

    assert Training(4).goes(12, own).find() == ()


def test_a_rank_that_recovers_is_no_longer_spoken_of() -> None:
    training = Training(4).goes(8).goes(8, with_more(1, "forward", 0.05))
    assert training.find()
    assert training.goes(8).find() == ()


# --- looking closer


def test_a_slow_rank_is_looked_at_and_all_are_asked_when_they_arrive() -> None:
    training = Training(4).goes(8)
    for placed in training.ranks:
        placed.entered = []
    training.goes(6, with_more(3, "forward", 0.05))
    wanted = attention(training.state)
    assert 3 in wanted.stacks
    assert len(wanted.stacks) < 4


def test_a_job_at_its_usual_pace_is_asked_for_no_stacks() -> None:
    assert attention(Training(4).goes(20).state).stacks == ()


# --- steps that take a second, as those of large models do


def as_long(own: Own, factor: float = 25.0) -> Own:
    return lambda rank, step: {name: factor * s for name, s in own(rank, step).items()}


def test_a_straggler_among_long_steps() -> None:
    training = Training(4).goes(60, as_long(usual))
    found = training.goes(40, as_long(with_more(2, "forward", 0.02))).finds()
    assert (found.kind, found.ranks) == ("slow.straggler", (2,))
    assert "at every step" in found.summary


def test_long_steps_of_random_length_are_nobodys_fault() -> None:
    chance = random.Random(11)

    def own(rank: int, step: int) -> dict[str, float]:
        work = usual(rank, step)
        return {**work, "forward": work["forward"] + chance.random() * 0.02}

    training = Training(4).goes(40, as_long(own))
    for _ in range(40):
        assert training.goes(5, as_long(own)).find() == ()


def test_long_steps_whose_input_comes_late_on_all_ranks() -> None:
    found = Training(2).goes(60, as_long(usual)).goes(40, as_long(all_with_more("data", 0.06))).finds()
    assert (found.kind, found.ranks) == ("slow.data", (0, 1))


# --- what chance and other waits look like


def test_a_few_meetings_favour_nobody() -> None:
    def own(rank: int, step: int) -> dict[str, float]:
        return {**usual(rank, step), "forward": 0.3 if rank == 0 else 0.05}

    training = Training(2).goes(8)
    for placed in training.ranks:
        placed.entered = []
    training.state.paces[0].arrivals.clear()
    training.state.paces[1].arrivals.clear()
    assert [f.kind for f in training.goes(2.5, own).find() if f.kind == "slow.straggler"] == []


def test_where_ranks_also_send_and_receive_nobody_is_blamed_for_a_wait_in_that() -> None:
    training = Training(4).goes(8).goes(8, with_more(1, "forward", 0.05))
    assert training.find()
    training.state.paces[2].p2p_s = training.now_s
    assert training.find() == ()


def test_what_was_found_is_not_judged_anew_when_others_have_ended() -> None:
    training = Training(3).goes(8).goes(8, with_more(1, "forward", 0.05))
    training.state.columns.status[2] = Status.EXITED
    assert not [f for f in detect(training.state) if f.kind.startswith("slow")]


def test_what_ranks_came_to_last_is_told_by_their_operations_and_not_by_when_those_were_read() -> None:
    pace = Pace()
    told = tuple(Operation("ALLREDUCE", "0", n, source="flight recorder", entered_s=100.0 + n) for n in range(1, 5))
    pace.note_detail(Detail(0, recorder=told), 109.0)
    assert (pace.arrivals_read_s, pace.arrived_s) == (109.0, 104.0)
    pace.note_detail(Detail(0, history=(Operation("BARRIER", "0", 9, entered_s=110.0),)), 111.0)
    assert (pace.arrivals_read_s, pace.arrived_s) == (109.0, 104.0)  # most come from the recorder
