"""What repeated looks at a slow rank add: storage, input, the place that sets it apart; and how often they come."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.detectors.states import at
from tests.detectors.training import Training, with_more

from diagd.daemon.detectors import looks
from diagd.daemon.detectors.attention import attention
from diagd.daemon.detectors.finding import Basis
from diagd.daemon.state.model import INPUT, WAIT, Frame, Thread

SLEEPS = at("main", "/job/train.py", 30)
APPENDS = at("append", "/job/journal.py", 21)


def slow_in_forward(training: Training) -> Training:
    return training.goes(8, with_more(1, "forward", 0.05))


# --- storage


def test_a_rank_that_sleeps_in_calls_on_files_where_others_do_not_is_held_up_by_storage() -> None:
    training = Training(4).goes(8).sleeps(1, 32, of=50).sleeps(0, 1, of=50)
    found = slow_in_forward(training).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("slow.host", (1,), "storage")
    assert "waits for storage (fsync on journal.bin)" in found.summary
    assert any("fsync on /data/journal.bin" in e.what for e in found.causes[0].evidence)


def test_lines_that_sync_count_where_the_kernel_has_seen_that_call_sleep() -> None:
    training = Training(4).goes(8).seen(1, APPENDS, role="sample", times=28, syscall="fsync")
    training.seen(0, SLEEPS, role="sample", times=30).sleeps(0, 0, of=50)
    assert slow_in_forward(training.sleeps(1, 0, of=50)).finds().kind == "slow.straggler"
    found = training.sleeps(1, 6, of=50).goes(1, with_more(1, "forward", 0.05)).finds()
    assert (found.kind, found.causes[0].key) == ("slow.host", "storage")


def test_storage_that_all_ranks_wait_for_alike_makes_none_of_them_slow() -> None:
    training = Training(4).goes(8).sleeps(1, 32, of=50).sleeps(0, 30, of=50)
    assert slow_in_forward(training).finds().kind == "slow.straggler"


def test_a_small_part_of_the_time_in_storage_does_not_explain_a_slow_rank() -> None:
    training = Training(4).goes(8).sleeps(1, 8, of=50).sleeps(0, 0, of=50)
    assert slow_in_forward(training).finds().kind == "slow.straggler"


def test_storage_is_not_named_where_no_other_rank_was_looked_at_or_looks_are_few() -> None:
    assert slow_in_forward(Training(4).goes(8).sleeps(1, 32, of=50)).finds().kind == "slow.straggler"
    few = Training(4).goes(8).seen(1, APPENDS).goes(8, with_more(1, "forward", 0.05))
    few.sleeps(1, 5, of=6).sleeps(0, 0, of=6)
    assert few.finds().kind == "slow.straggler"


def test_waits_for_disks_that_the_kernel_counts_are_storage_too() -> None:
    found = Training(4).goes(8).goes(8, with_more(1, "forward", 0.05, disk_wait_s=0.04)).finds()
    assert (found.kind, found.causes[0].key) == ("slow.host", "storage")


# --- input that no loader of torch's brings


def test_a_rank_whose_loop_asks_for_more_where_others_do_not_is_starved() -> None:
    training = Training(4).goes(8).seen(1, at("query", "/job/data.py", 9), SLEEPS, role="sample", times=30, note=INPUT)
    training.seen(0, SLEEPS, role="sample", times=30)
    found = slow_in_forward(training).finds()
    assert (found.kind, found.ranks, found.locations[0].frame.function) == ("slow.data", (1,), "query")
    assert (found.causes[0].basis, found.causes[0].confidence) == (Basis.INFERENCE, 0.7)


def test_where_the_loop_waits_at_a_queue_the_thread_that_fills_it_is_shown_first() -> None:
    def fetches(*waits: Frame) -> tuple[str, ...]:
        training = Training(4).goes(8).seen(0, SLEEPS, role="sample", times=30)
        training.seen(1, *waits, SLEEPS, role="sample", times=30, note=INPUT).seen(1, SLEEPS)
        *before, rank = training.ranks[1].stacks
        producer = Thread(2, "prefetch", (at("query", "/job/source.py", 5),))
        training.ranks[1].stacks = (*before, replace(rank, threads=(*rank.threads, producer)))
        return tuple(place.frame.function for place in slow_in_forward(training).finds().locations)

    assert fetches(Frame("get", "/usr/lib/python3.11/queue.py", 171, user=False))[0] == "query"
    assert "query" not in fetches()


def test_input_that_all_ranks_ask_for_alike_is_not_why_one_is_slow() -> None:
    training = Training(4).goes(8)
    for rank in (0, 1):
        training.seen(rank, at("query", "/job/data.py", 9), SLEEPS, role="sample", times=30, note=INPUT)
    assert slow_in_forward(training).finds().kind == "slow.straggler"


def test_input_is_not_named_where_no_other_rank_was_looked_at() -> None:
    training = Training(4).goes(8).seen(1, SLEEPS, role="sample", times=30, note=INPUT)
    assert slow_in_forward(training).finds().kind == "slow.straggler"


# --- places


def test_the_place_is_where_it_spends_more_of_its_time_than_the_others() -> None:
    training = Training(3).goes(8)
    training.seen(1, SLEEPS, times=20).seen(1, APPENDS, SLEEPS, role="sample", times=15)
    training.seen(0, SLEEPS, times=19).seen(2, SLEEPS, times=22)
    found = slow_in_forward(training).finds()
    assert [place.frame.function for place in found.locations] == ["append", "main"]


C10D = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"


@pytest.mark.parametrize(
    "called",
    [(Frame("recv", C10D, 2400, user=False), Frame("wrapper", "/x/torch/distributed/c10d_logger.py", 8, user=False)),
     (Frame("batch_isend_irecv", C10D, 2700, user=False),), (Frame("wait", "<diagd>", 70, user=False),),
     (Frame("wait_tensor", "/x/torch/distributed/_functional_collectives.py", 9, user=False),)],
)  # fmt: skip
def test_a_line_that_waits_for_others_is_no_place_of_a_slow_rank(called: tuple[Frame, ...]) -> None:
    training = Training(2).goes(8).seen(0, SLEEPS, role="sample", times=30)
    training.seen(1, *called, at("backward", "/job/stage.py", 40), role="sample", times=20)
    training.seen(1, APPENDS, SLEEPS, times=5)
    assert [place.frame.function for place in slow_in_forward(training).finds().locations] == ["append"]


def test_a_line_that_the_source_shows_to_wait_is_none_either() -> None:
    training = Training(2).goes(8).seen(0, SLEEPS, role="sample", times=30).seen(1, APPENDS, times=5)
    training.seen(1, at("backward", "/job/stage.py", 40), role="sample", times=20, note=WAIT)
    assert [place.frame.function for place in slow_in_forward(training).finds().locations] == ["append"]


def test_the_backward_pass_is_shown_only_where_it_may_be_what_is_slow() -> None:
    site = at("train", "/job/train.py", 12)

    def shown(phase: str) -> list[str]:
        training = Training(2).goes(8).seen(0, SLEEPS, role="sample", times=30)
        training.backward_site = site
        training.seen(1, site, role="sample", times=20).seen(1, APPENDS, SLEEPS, times=5)
        return [place.frame.function for place in training.goes(8, with_more(1, phase, 0.05)).finds().locations]

    assert shown("backward") == ["train", "append"]
    assert shown("forward") == ["append"]


# --- how often


def test_a_few_ranks_that_are_not_slow_are_looked_at_beside_the_slow_one() -> None:
    training = slow_in_forward(Training(8).goes(8))
    assert attention(training.state).stacks == (1, 0, 2)


def test_looks_at_a_rank_that_stays_slow_alike_come_ever_more_seldom() -> None:
    training = Training(3).goes(8)
    slow = with_more(1, "forward", 0.05)
    asked: list[float] = []
    for _ in range(1200):
        training.goes(0.5, slow)
        for placed in training.ranks:
            placed.stacks = ()
        if 1 in attention(training.state).stacks:
            asked.append(training.now_s)
            training.seen(1, SLEEPS, role="sample", times=45).seen(0, SLEEPS, role="sample", times=45)
    gaps = [round(after - before) for before, after in pairwise(asked)]
    assert gaps[0] < 45 < gaps[1] < 100 < gaps[2]
    assert max(gaps) <= 245


def test_another_pace_brings_the_looks_back() -> None:
    training = Training(3).goes(8)
    training.seen(1, SLEEPS, role="sample", times=45).goes(1, with_more(1, "forward", 0.05))
    pace = training.state.paces[1]
    for placed in training.ranks:
        placed.stacks = ()
    pace.rounds.note_look(training.now_s + 40)
    pace.rounds.note_look(training.now_s + 140)
    assert pace.rounds.holds_s() > 60
    training.goes(5, with_more(1, "forward", 0.2))
    assert pace.rounds.holds_s() == 30


# --- where ranks meet


@pytest.mark.parametrize(("met", "told"), [(20, True), (3, False)])
def test_the_call_in_which_ranks_are_often_with_each_other_is_their_meeting(met: int, told: bool) -> None:
    share = at("share_rows", "/job/bank.py", 17)
    training = Training(2).goes(8).seen(0, SLEEPS, role="sample", times=20)
    training.seen(0, share, SLEEPS, times=met, note=WAIT).goes(8, with_more(0, "forward", 0.05))
    found = [place.frame for place in looks.meetings(training.state, 0)]
    assert found == ([share] if told else [])
