"""Progress, but below what the job has shown it can do: one rank that the others wait for, or all of them at once."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import sqrt
from statistics import median

from diagd.daemon.detectors import contention, links, looks, partners, slowness, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.lateness import Lateness, lateness
from diagd.daemon.detectors.observed import Observed, observed
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.slowness import CURRENT_S, HOST_PART, Current, Excess, is_slowed, pace_of
from diagd.daemon.detectors.trend import growth

KEY = "pace"
COSTS_SHARE = 0.15  # of the time that the others lose to one rank; less than that is an ordinary imbalance
STEADY_SPAN_S = 2.0  # in less, or in fewer meetings, chance can favour one rank
STEADY_MEETINGS = 12
STRETCH_STEPS = 16  # a little more than so many meetings, where there is one a step
APART = 3.5  # of the delays' sum from what ranks that are late by turns have: a chance of one in some thousands
APART_PART = 0.85  # of the highest that so few meetings can give
HALF_SHARE = 0.08  # in each half of the stretch, to be called steady
LATE_A_STEP_S = 0.005  # shorter is the scheduler's
NEAR = 0.5  # ranks that cost at least so much of what the worst one costs are slow with it
LOOK_BACK_S = 30.0  # for what comes in bursts
LOOK_BACK_STEPS = 100
LEAST_BURSTS = 3
BURST_SPAN_S = 8.0
STILL_GAPS = 3.0  # it still comes in bursts where the last one is no longer ago than so many of the gaps between them
OFTEN = 0.5  # of the steps; a rank that is late to fewer is so in bursts
PART = 0.5  # what makes up so much of the excess explains it
SOME_PART = 0.3  # of it, for a rank whose steps are as long as the others' because it waits for them
KNOWN_PART = 0.9  # of the ranks
QUIET_SHARE = 0.1  # ranks arrive together where nobody costs more


def slow(scene: Scene) -> Iterator[Finding]:
    """At most one finding, and none while the job stands still: that is another matter."""
    state = scene.state
    stands = scene.longest_s(tuple(scene.graph.waits)) >= scene.late_s
    if state.from_dumps or state.ended_s is not None or stands:
        return
    if any(state.status(r).gone for r in state.ranks()):
        return  # there is nobody left to compare with, and what was found stands
    steps = pace_of(scene.state)
    if not steps.now:
        return
    read_s = max(state.paces[r].arrivals_read_s for r in steps.now)
    longest_s = max(rates.step_s for rates in steps.now.values())
    lately = lateness(state, min(read_s, state.now_s) - max(CURRENT_S, STRETCH_STEPS * longest_s))
    # A slow link first: its ranks come late to others because of it.
    found = _slow_link(scene, steps) or _late_ones(scene, steps, lately) or _slowed(scene, steps, lately)
    if found is not None:
        yield found


def _slow_link(scene: Scene, steps: Current) -> Finding | None:
    """Two ranks, or hosts, between which all takes long though both are there."""
    if (link := links.slow_link(scene.state, steps)) is None:
        return None
    slowest_s = max(c.seconds for c in link.slow)
    said = (
        f"{links.what(link)} between {_pairs_text(link)} take up to {1000 * slowest_s:.0f} ms once both are there,"
        f" those of other pairs {1000 * link.quick_s:.1f} ms: the link {link.where} is slow"
    )
    said += f" ({link.not_known} is not known)" if link.not_known else ""
    waiting = tuple(r for r in sorted(steps.now) if r not in link.ranks)
    cause = Cause("link", f"the link {link.where} is slow", 0.85, Basis.OBSERVATION, link.evidence())
    return Finding(
        kind="slow.collective", severity=Severity.WARNING, ranks=link.ranks, waiting_ranks=waiting,
        summary=words.shortened(said + "."), causes=(cause,), step=scene.step(link.ranks),
        since_s=scene.state.now_s - CURRENT_S, key=KEY,
    )  # fmt: skip


def _pairs_text(link: links.SlowLink) -> str:
    pairs = sorted({c.ranks for c in link.slow})
    return ", ".join(f"ranks {a} and {b}" for a, b in pairs[:3]) + (", …" if len(pairs) > 3 else "")


def _late_ones(scene: Scene, steps: Current, lately: list[Lateness]) -> Finding | None:
    """Ranks that the others wait for, at every step or in bursts."""
    if partners.send_lately(scene.state):
        return _among_partners(scene, steps, lately)
    if not lately:
        return None
    longest_s = max(rates.step_s for rates in steps.now.values())
    long = lateness(scene.state, scene.state.now_s - max(LOOK_BACK_S, LOOK_BACK_STEPS * longest_s))
    culprits = _of_groups(lately, steps, _steady)
    if culprits and all(_beyond_chance(late, r) for late in long[:1] for r in culprits if r in late.cost_s):
        return _straggling(scene, steps, lately, culprits)
    if long and (culprits := _of_groups(long, steps, _bursts)):
        return _straggling(scene, steps, long, culprits)
    return None


def _among_partners(scene: Scene, steps: Current, lately: list[Lateness]) -> Finding | None:
    """The same where ranks wait for each other in send and recv, too: no such wait is laid to who waits."""
    if not partners.waits_known(scene.state, steps):
        return None
    parts = partners.Parts(scene.state)
    equals = [late for late in lately if not parts.stages(late.cost_s)]
    if equals and (culprits := _of_groups(equals, steps, _steady)):
        return _straggling(scene, steps, equals, culprits)
    if (found := partners.slower(scene.state, steps, parts)) is None:
        return None
    worst = found.ranks[0]
    excess = slowness.against(steps.now[worst], [steps.usual[worst]], found.own_s)
    made = _of_one(scene, worst, list(found.waiting), steps.now[worst].step_s, excess)
    ranks = tuple(sorted(found.ranks))
    said = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'takes', 'take')} {1000 * found.own_s:.0f} ms a step longer"
        f" than before without waiting for anyone, and {words.wait_text(found.waiting)} meanwhile, {made.why}"
    )
    evidence = (
        *made.evidence,
        *found.evidence,
        *slowness.evidence(worst, steps.now[worst], excess, steps.usual[worst]),
    )
    cause = Cause(made.key, made.why, made.confidence, made.basis, evidence)
    return _finding(scene, made.kind, ranks, found.waiting, said, cause, backward=_may_be_backward(excess))


# --- one rank, or a few


def _of_groups(found: list[Lateness], steps: Current, holds: Callable[[Lateness, int], bool]) -> tuple[int, ...]:
    """The culprits of the group in which most is lost, and of those in which nearly as much is."""
    if not (first := _culprits(found[0], steps, holds)):
        return ()
    most_s = max(found[0].cost_s.values())
    near = [late for late in found[1:] if max(late.cost_s.values()) >= NEAR * most_s]
    return tuple(sorted({*first, *(r for late in near for r in _culprits(late, steps, holds))}))


def _culprits(late: Lateness, steps: Current, holds: Callable[[Lateness, int], bool]) -> tuple[int, ...]:
    """The ranks that the others lose their time to; none where ranks are late by turns."""
    worst = max(late.cost_s, key=lambda r: late.cost_s[r])
    if late.share(worst) < COSTS_SHARE or worst not in steps.now or not holds(late, worst):
        return ()
    step_s = steps.now[worst].step_s
    if late.share(worst) * step_s < LATE_A_STEP_S:
        return ()
    slow_ones = tuple(sorted(r for r, cost_s in late.cost_s.items() if cost_s >= NEAR * late.cost_s[worst]))
    if 2 * len(slow_ones) > len(late.cost_s) or any(r not in steps.now for r in slow_ones):
        return ()  # most of them are late: it is the others that are fast, or they are late by turns
    return slow_ones


def _steady(late: Lateness, rank: int) -> bool:
    steady = all(part / (late.span_s / 2) >= HALF_SHARE for part in late.halves[rank])
    enough = late.span_s >= STEADY_SPAN_S and late.meetings >= STEADY_MEETINGS
    return steady and enough and _beyond_chance(late, rank)


def _beyond_chance(late: Lateness, rank: int) -> bool:
    """Whether ranks that are late by turns would hardly ever look so."""
    return late.apart[rank] >= min(APART, APART_PART * sqrt(late.meetings))


def _bursts(late: Lateness, rank: int) -> bool:
    times = late.lasts[rank]
    if len(times) < LEAST_BURSTS or late.span_s < BURST_SPAN_S:
        return False
    if late.rivals[rank] and not _beyond_chance(late, rank):
        return False
    gap_s = median(after - before for before, after in pairwise(times))
    return late.until_s - times[-1] <= STILL_GAPS * gap_s  # else it has recovered


def _straggling(scene: Scene, steps: Current, found: list[Lateness], ranks: tuple[int, ...]) -> Finding:
    late = found[0]
    worst = max(late.cost_s, key=lambda r: late.cost_s[r])
    lost_s = late.share(worst) * steps.now[worst].step_s
    others = [r for r in late.cost_s if r in steps.now and r not in ranks]
    excess = slowness.against(steps.now[worst], [steps.now[r] for r in others], lost_s)
    made = _of_one(scene, worst, others, steps.now[worst].step_s, excess)
    kind, key, why = made.kind, made.key, made.why
    often = len(late.lasts[worst]) >= OFTEN * late.span_s / steps.now[worst].step_s
    how = "at every step" + _growing(scene, worst, others) if often else "in bursts"
    rest = tuple(r for r in sorted({r for one in found for r in one.cost_s}) if r not in ranks)
    said = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'is', 'are')} slow {how}: the others wait"
        f" {100 * late.share(worst):.0f} % of the time for {words.verb(ranks, 'it', 'them')}, {why}"
    )
    said_late = (
        f"came last to {len(late.lasts[worst])} of {late.meetings} operations, {1000 * lost_s:.0f} ms a step after "
        f"the first, over {words.seconds_text(late.span_s)}"
    )
    evidence = (
        Evidence(said_late, late.source, worst), *made.evidence,
        *slowness.evidence(worst, steps.now[worst], excess),
    )  # fmt: skip
    cause = Cause(key, why, made.confidence, made.basis, evidence)
    return _finding(scene, kind, ranks, rest, said, cause, backward=_may_be_backward(excess))


def _may_be_backward(excess: Excess) -> bool:
    """Whether its backward pass may be what is slow: not where another phase makes up for most of it."""
    return excess.part(excess.largest_phase()) < PART


def _growing(scene: Scene, rank: int, others: list[int]) -> str:
    if (found := growth(scene.state, rank, others)) is None:
        return ""
    ago = words.seconds_text(found.span_s)
    return f" and ever more so ({1000 * found.before_s:.0f} ms a step {ago} ago, {1000 * found.now_s:.0f} ms now)"


def _of_one(scene: Scene, rank: int, others: list[int], step_s: float, excess: Excess) -> Observed:
    """Why a rank is slower than others: by its totals, and where they say no more than that, by looks at it."""
    by_totals = Observed(*_of_rank(excess), 0.85, Basis.OBSERVATION, ())
    if by_totals.kind != "slow.straggler":
        return by_totals
    return observed(scene.state, rank, others, step_s, excess) or by_totals


def _of_rank(excess: Excess) -> tuple[str, str, str]:
    """Kind, key of the fix, and words, from what the rank's excess is made of."""
    if excess.part("data") >= PART:
        return "slow.data", "data", "because its input comes late"
    # Who computes more also waits more for a CPU that others use as well: there its work has grown.
    computes = excess.cpu_s >= excess.host.get(slowness.DELAY, 0.0) and excess.cpu_part >= HOST_PART
    if (host := slowness.host_cause(excess)) and not (computes and host[0] in contention.KEYS):
        return contention.kind(host[0]), *host
    phase = excess.largest_phase()
    if phase and excess.part(phase) >= PART:
        where = f"in phase {phase}" if phase in ("data", "optimizer") else "between the optimizer's step and backward"
        return "slow.straggler", "slow_rank", f"because its own work {where} takes longer"
    return "slow.straggler", "slow_rank", "because its own work takes longer"


# --- all of them


def _slowed(scene: Scene, steps: Current, found: list[Lateness]) -> Finding | None:
    """All ranks' steps take longer than they did, and not because they have more to compute."""
    known = {r: (steps.now[r], steps.usual[r]) for r in steps.usual}
    slowed = {r: pair for r, pair in known.items() if is_slowed(*pair)}
    if not known or len(known) < KNOWN_PART * len(steps.now) or len(slowed) < KNOWN_PART * len(known):
        return None  # of some it is not known, or they are as fast as ever
    excess = {r: slowness.against(now, [usual], now.step_s - usual.step_s) for r, (now, usual) in slowed.items()}
    made = _of_all(scene, excess, found)
    if made is None:
        return None
    kind, key, why = made
    ranks = tuple(sorted(r for r, e in excess.items() if key != "data" or e.part("data") >= SOME_PART))
    now_s = median(now.step_s for now, _ in slowed.values())
    usual_s = median(usual.step_s for _, usual in slowed.values())
    said = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'takes', 'take')} {1000 * now_s:.0f} ms a step where "
        f"{1000 * usual_s:.0f} ms were shown before, {why}"
    )
    evidence = tuple(e for r in ranks[:3] for e in slowness.evidence(r, slowed[r][0], excess[r], slowed[r][1]))
    return _finding(scene, kind, ranks, (), said, Cause(key, why, 0.8, Basis.OBSERVATION, evidence))


def _of_all(scene: Scene, excess: dict[int, Excess], found: list[Lateness]) -> tuple[str, str, str] | None:
    """The same for all ranks together; None where they have more to compute, which is no fault."""
    if median(e.part("data") for e in excess.values()) >= PART:
        return "slow.data", "data", "because the input comes late"
    host = [cause for e in excess.values() if (cause := slowness.host_cause(e)) is not None]
    if 2 * len(host) > len(excess):
        return contention.kind(host[0][0]), *host[0]
    in_python = median(e.part("collective") for e in excess.values())
    # In a backward pass that waits for gloo the thread uses no CPU; with a device it never does, so that tells nothing.
    on_cpu = all(scene.state.detail(r).backend.startswith("gloo") for r in excess)
    in_backward = median(e.part("backward") - e.cpu_part for e in excess.values()) if on_cpu else 0.0
    together = bool(found) and all(late.share(r) < QUIET_SHARE for late in found for r in late.cost_s)
    if partners.send_lately(scene.state):
        return None  # time in operations is also time in which a stage waits for another's work
    if together and max(in_python, in_backward) >= PART:
        return "slow.collective", "communication", "and they arrive together: the communication itself is slow"
    return None


def _finding(
    scene: Scene, kind: str, ranks: tuple[int, ...], waiting: tuple[int, ...], said: str, cause: Cause, *,
    backward: bool = True,
) -> Finding:  # fmt: skip
    data = kind == "slow.data"
    others = tuple(r for r in scene.state.paces if r not in ranks)
    locations = tuple(place for r in ranks for place in looks.places(scene.state, r, data, others, backward=backward))
    where = words.place_text(locations[0].frame) if locations else ""
    often = "most often " if any(looks.seen_often(scene.state, r) for r in ranks) else ""
    return Finding(
        kind=kind, severity=Severity.WARNING, ranks=ranks, waiting_ranks=waiting,
        names=("worker",) if cause.key == contention.WORKERS or (data and looks.in_worker(scene.state, ranks)) else (),
        summary=words.shortened(said + (f"; {often}in {where}" if where else "") + "."), causes=(cause,),
        locations=locations, step=scene.step(ranks), since_s=scene.state.now_s - CURRENT_S, key=KEY,
    )  # fmt: skip
