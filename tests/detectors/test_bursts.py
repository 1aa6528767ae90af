"""A rank that holds the others up for long now and then, among ranks that are all late by a little."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.detectors.states import at
from tests.detectors.training import Own, Training, usual

from diagd.daemon.detectors import bursts, laggards
from diagd.daemon.detectors.lateness import Delay, Lateness
from diagd.daemon.detectors.slowness import Current
from diagd.daemon.state.pace import Rates

HISTOGRAM = at("count", "/job/train.py", 20)
LOOP = at("main", "/job/train.py", 43)
NOISE_S = 0.012  # on average, of ranks that share CPUs


def among_noise(chance: random.Random, more: Callable[[int, int], float] = lambda rank, step: 0.0) -> Own:
    """As usual, but each rank's steps take longer by chance; `more` is what a rank spends beside."""

    def own(rank: int, step: int) -> dict[str, float]:
        work = usual(rank, step)
        return {**work, "other": chance.expovariate(1 / NOISE_S) + more(rank, step)}

    return own


def every(steps: int, who: int, seconds: float = 1.2) -> Callable[[int, int], float]:
    return lambda rank, step: seconds if rank == who and step % steps == 0 else 0.0


def stretch(delays: dict[int, list[Delay]], until_s: float = 30.0, ranks: int = 4) -> Lateness:
    """A stretch of `until_s` seconds in which ranks came last so."""
    lasts = {r: tuple(sorted(delays.get(r, ()))) for r in range(ranks)}
    cost_s = {r: sum(one.by_s for one in of) for r, of in lasts.items()}
    return Lateness("flight recorder", until_s, until_s, 600, cost_s, {}, lasts, {}, dict.fromkeys(lasts, 0.0))


def found(late: Lateness) -> tuple[int, ...]:
    rates = Rates(0.0, late.until_s, 300, 0.1, {}, 0.0, {})
    steps = Current(dict.fromkeys(late.cost_s, rates), {})
    return laggards.of_groups([bursts.long_ones(late, steps)], steps, bursts.stands_out)


def spread(times: int, by_s: float = 1.2, first_s: float = 2.0, gap_s: float = 2.5) -> list[Delay]:
    return [Delay(first_s + gap_s * n, by_s) for n in range(times)]


# --- found


@pytest.mark.parametrize("seed", range(3))
def test_one_among_ranks_that_are_all_late_by_a_little_is_named_and_said_to_come_in_bursts(seed: int) -> None:
    chance = random.Random(seed)
    training = Training(4).goes(12, among_noise(chance))
    finding = training.goes(30, among_noise(chance, every(25, 1))).finds()
    assert (finding.kind, finding.ranks, finding.waiting_ranks) == ("slow.straggler", (1,), (0, 2, 3))
    assert "in bursts" in finding.summary


def test_that_one_rank_was_read_later_than_the_others_hides_no_burst() -> None:
    chance = random.Random(4)
    own = among_noise(chance, every(25, 1))
    training = Training(4).goes(12, among_noise(chance)).goes(30, own)
    training.closely = False
    training.goes(4, own)
    training.state.paces[1].arrivals_read_s = training.now_s
    assert training.finds().ranks == (1,)


def test_the_place_is_where_it_was_seen_since_the_bursts_began_and_the_others_were_not() -> None:
    chance = random.Random(5)
    training = Training(4).seen(1, LOOP, times=10).seen(0, LOOP, times=10).goes(12, among_noise(chance))
    own = among_noise(chance, every(25, 1))
    training.goes(12, own).seen(1, HISTOGRAM, times=10).goes(12, own).seen(1, LOOP, times=10)
    assert [place.frame for place in training.goes(12, own).finds().locations] == [HISTOGRAM]


def test_where_no_look_met_a_burst_no_place_is_named() -> None:
    chance = random.Random(6)
    training = Training(4).seen(1, LOOP, times=10).seen(0, LOOP, times=10).goes(12, among_noise(chance))
    finding = training.goes(30, among_noise(chance, every(25, 1))).finds()
    assert (finding.ranks, finding.locations) == ((1,), ())


# --- not found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rare", [0.0, 0.003, 0.01])
def test_ranks_that_are_late_by_chance_and_now_and_then_for_long_are_nobodys_fault(rare: float, seed: int) -> None:
    chance = random.Random(seed)

    def more(rank: int, step: int) -> float:
        return min(chance.paretovariate(1.3), 4.0) if chance.random() < rare else 0.0

    training = Training(4).goes(10, among_noise(chance))
    for _ in range(30):
        assert training.goes(2, among_noise(chance, more)).find() == ()


@pytest.mark.parametrize("seconds", [1.0, 5.0])
@pytest.mark.parametrize("seed", range(20))
def test_who_is_held_up_for_a_while_at_each_step_has_had_bad_luck_once(seed: int, seconds: float) -> None:
    """By turns, as where others compute on the same CPUs; each delay by itself would make a burst."""
    chance, delays = random.Random(seed), {rank: list[Delay]() for rank in range(4)}
    at_s = 0.0
    while at_s < 30.0:
        who, until_s = chance.randrange(4), at_s + chance.expovariate(1 / seconds)
        while at_s < min(until_s, 30.0):
            late_s = chance.expovariate(1 / 0.2)
            at_s += 0.05 + late_s
            delays[who].append(Delay(at_s, late_s))
        at_s += chance.expovariate(1 / seconds)
    assert found(stretch(delays)) == ()


def test_bursts_of_two_ranks_in_turn_make_neither_a_straggler() -> None:
    assert found(stretch({1: spread(10), 2: spread(10, first_s=3.2)})) == ()


def test_a_rank_that_has_recovered_is_not_spoken_of() -> None:
    assert found(stretch({1: spread(8, gap_s=1.5)}, until_s=14.0)) == (1,)
    assert found(stretch({1: spread(8, gap_s=1.5)}, until_s=18.0)) == ()


def test_what_a_rank_saves_alone_does_not_count_and_hides_no_burst() -> None:
    saves, excused_s = [Delay(2.0 + 2 * n, 0.9 - 0.001 * n) for n in range(14)], {0: 12.6, 1: 0.0, 2: 0.0, 3: 0.0}
    assert found(replace(stretch({0: [*saves, Delay(9.9, 6.0)]}), excused_s=excused_s)) == ()
    assert found(replace(stretch({0: [*saves, *spread(11, first_s=3.2)]}), excused_s=excused_s)) == (0,)


def test_long_delays_that_cost_little_of_the_time_are_an_ordinary_imbalance() -> None:
    assert found(stretch({1: spread(10, by_s=0.46)})) == (1,)
    assert found(stretch({1: spread(10, by_s=0.44)})) == ()


# --- how many are enough


@pytest.mark.parametrize(("ranks", "enough"), [(2, 13), (4, 7), (8, 5), (16, 4), (64, 3), (512, 3)])
def test_of_fewer_ranks_more_bursts_are_needed(ranks: int, enough: int) -> None:
    def late(times: int) -> Lateness:
        return stretch({1: spread(times, gap_s=4.0)}, until_s=4.0 * times, ranks=ranks)

    assert found(late(enough)) == (1,)
    assert found(late(enough - 1)) == ()


@pytest.mark.parametrize(("rivals", "culprits"), [(0, (1,)), (8, (1,)), (9, ())])
def test_three_of_four_long_delays_have_to_be_its_own(rivals: int, culprits: tuple[int, ...]) -> None:
    late = {1: spread(24, gap_s=1.1), 2: spread(rivals, by_s=0.7, gap_s=1.1), 0: spread(24, by_s=0.5, gap_s=1.1)}
    assert found(stretch(late)) == culprits


def test_a_row_of_late_steps_is_one_burst_however_long_it_is() -> None:
    rows = [Delay(first_s + 0.9 * n, 0.4) for first_s in (2.0, 12.0, 22.0) for n in range(8)]
    assert found(stretch({1: rows})) == ()
    apart = [Delay(2.0 + 1.1 * n, 0.4) for n in range(24)]
    assert found(stretch({1: apart})) == (1,)


def test_the_chance_is_a_binomials_tail_for_any_of_the_ranks() -> None:
    assert bursts.chance(7, 7, 4) == 4.0**-6
    assert bursts.chance(2, 3, 2) == pytest.approx(2 * (3 + 1) / 8)
    assert bursts.chance(0, 5, 3) == pytest.approx(3.0)
