"""Delays that stand out of the others' noise: a rank that holds all up for long, now and then.

Where ranks share CPUs, each of them is late by a little at most meetings. What is typical of a rank's delays is then
that noise, and their sum is hardly ever beyond chance: ten long ones, though all are its own, weigh no more than the
root of ten. So only the long ones are counted here, and whose they are: if no rank is different, each is anyone's.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from math import comb, inf

from diagd.daemon.detectors import laggards
from diagd.daemon.detectors.lateness import Delay, Lateness
from diagd.daemon.detectors.slowness import Current

PART = 0.5  # of a rank's cost is made of delays as long as its long ones, or longer
LONG = 0.5  # a delay counts from so much of that on: those of one cause differ, but hardly by more
# Delays follow each other where something holds one rank up for a while, or a step has many meetings: however long that
# lasts, it is one occasion, and ends once the rank came in time for so long. Counting each second of it made simulated
# ranks that are held up by turns, for five seconds on average, stragglers in one of sixteen stretches.
OCCASION_S = 1.0
OCCASION_STEPS = 2.0
MOSTLY = 0.75  # of the occasions are its own; else what befalls it befalls the others, too
CHANCE = 2.0**-12  # for any rank, were each delay anyone's: as seldom as what `laggards.APART` lets through


def long_ones(late: Lateness, steps: Current) -> Lateness:
    """The same stretch with nothing in it but occasions of delays that are as long as those that cost most."""
    worst = max(late.cost_s, key=lambda r: late.cost_s[r])
    least_s = LONG * _usual_s(late.lasts[worst])
    apart_s = max([OCCASION_S, *(OCCASION_STEPS * steps.now[r].step_s for r in late.cost_s if r in steps.now)])
    cost_s, lasts = {}, {}
    for rank, delays in late.lasts.items():
        longs, rest_s = _inexcusable([one for one in delays if one.by_s >= least_s], late.excused_s[rank])
        cost_s[rank] = max(sum(one.by_s for one in longs) - rest_s, 0.0)
        lasts[rank] = _occasions(longs, apart_s)
    return replace(late, cost_s=cost_s, lasts=lasts)


def _usual_s(delays: Iterable[Delay]) -> float:
    """How long the delay is, up to which the longest ones add up to half of all: many short ones do not count."""
    longest = sorted((one.by_s for one in delays), reverse=True)
    sums = accumulate(longest)
    return next((by_s for by_s, so_far in zip(longest, sums, strict=True) if so_far >= PART * sum(longest)), 0.0)


def _inexcusable(delays: Iterable[Delay], excused_s: float) -> tuple[list[Delay], float]:
    """The delays without those that are excused, and what is left of the excuse.

    Which they are is not known: where it is the shortest ones, the fewest are left.
    """
    kept = sorted(delays, key=lambda one: -one.by_s)
    while kept and excused_s >= kept[-1].by_s:
        excused_s -= kept.pop().by_s
    return sorted(kept), excused_s


def _occasions(delays: Iterable[Delay], apart_s: float) -> tuple[Delay, ...]:
    """The first delay of each row of those that follow the one before sooner."""
    firsts, before_s = [], -inf
    for one in delays:
        if one.at_s - before_s >= apart_s:
            firsts.append(one)
        before_s = one.at_s
    return tuple(firsts)


def stands_out(late: Lateness, rank: int) -> bool:
    """Whether the long delays are nearly all this rank's, by more than chance, and still come."""
    mine, rivals = len(late.lasts[rank]), late.rivals(rank, 0.0)
    if mine < laggards.LEAST_BURSTS or late.span_s < laggards.BURST_SPAN_S or mine < MOSTLY * (mine + rivals):
        return False
    return chance(mine, mine + rivals, len(late.cost_s)) <= CHANCE and laggards.still_comes(late, rank)


def began_s(late: Lateness) -> float:
    """When what costs most began: the first of its delays."""
    first = late.lasts[max(late.cost_s, key=lambda r: late.cost_s[r])][0]
    return first.at_s - first.by_s


def chance(mine: int, occasions: int, ranks: int) -> float:
    """The highest chance that some rank has at least so many of the occasions, if each is anyone's alike.

    Who comes last to a meeting does not depend on by how much, where all ranks do the same: so each is one throw of a
    die with as many sides as there are ranks (the binomial's tail, for any of them: Bonferroni).
    """
    ways = sum(comb(occasions, n) * pow(ranks - 1, occasions - n) for n in range(mine, occasions + 1))
    return float(ways * ranks / pow(ranks, occasions))
