"""One rank, or a few, that the others wait for."""

from collections.abc import Sequence
from math import inf
from statistics import median

from diagd.daemon.detectors import bursts, laggards, looks, partners, slow_causes, slowness, words
from diagd.daemon.detectors.finding import Cause, Evidence, Finding
from diagd.daemon.detectors.lateness import Delay, Lateness, lateness
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.slow_finding import because, finding_of
from diagd.daemon.detectors.slowness import Current
from diagd.daemon.detectors.trend import growth

LOOK_BACK_S = 30.0  # for what comes in bursts
LOOK_BACK_STEPS = 100
# For bursts among noise: seven of some tens of steps each, among four ranks. What the ranks' samples reach back to sets
# the bound: what they paused before that is not known.
FAR_BACK_S = 100.0
FAR_BACK_STEPS = 400
OFTEN = 0.5  # of the steps; a rank that is late to fewer is so in bursts


def late_ones(scene: Scene, steps: Current, lately: list[Lateness]) -> Finding | None:
    """Ranks that the others wait for, at every step or in bursts."""
    if partners.send_lately(scene.state):
        return _among_partners(scene, steps, lately)
    longest_s = max(rates.step_s for rates in steps.now.values())
    long = lateness(scene.state, scene.state.now_s - max(LOOK_BACK_S, LOOK_BACK_STEPS * longest_s))
    if lately and (found := _of_late(scene, steps, lately, long)) is not None:
        return found
    # Ranks are read one after the other: of the seconds before the newest reading some may not have told yet. Of what
    # was before, all have. To look further back is dear, so not where little is lost.
    if any(late.share(r) >= laggards.COSTS_SHARE for late in long for r in late.cost_s):
        return _standing_out(scene, steps)
    return None


def _of_late(scene: Scene, steps: Current, lately: list[Lateness], long: list[Lateness]) -> Finding | None:
    """Ranks that are late now: at nearly every step, or more often than by chance."""
    culprits = laggards.of_groups(lately, steps, laggards.steady)
    if culprits and all(laggards.beyond_chance(late, r) for late in long[:1] for r in culprits if r in late.cost_s):
        return _straggling(scene, steps, lately, culprits)
    if long and (culprits := laggards.of_groups(long, steps, laggards.bursts)):
        return _straggling(scene, steps, long, culprits)
    return None


def _standing_out(scene: Scene, steps: Current) -> Finding | None:
    """A rank that is late by far now and then, whatever noise there is beside it."""
    # The last steps hold a burst or none: how long they are, and what they are made of, all of the stretch tells.
    longest_s = max(rates.step_s for rates in slowness.pace_over(scene.state, steps, LOOK_BACK_S).now.values())
    reach_s = max(LOOK_BACK_S, LOOK_BACK_STEPS * longest_s, min(FAR_BACK_S, FAR_BACK_STEPS * longest_s))
    seen_s = max(scene.state.paces[r].samples[0].at_s for r in steps.now)
    since_s = max(scene.state.now_s - reach_s, seen_s)
    over = slowness.pace_over(scene.state, steps, scene.state.now_s - since_s)
    far = [bursts.long_ones(late, over) for late in lateness(scene.state, since_s)]
    far.sort(key=lambda late: -max(late.cost_s.values()))
    if far and (culprits := laggards.of_groups(far, over, bursts.stands_out)):
        return _straggling(scene, over, far, culprits, bursts.began_s(far[0]))
    return None


def _among_partners(scene: Scene, steps: Current, lately: list[Lateness]) -> Finding | None:
    """The same where ranks wait for each other in send and recv, too: no such wait is laid to who waits."""
    if not partners.waits_known(scene.state, steps):
        return None
    parts = partners.Parts(scene.state)
    equals = [late for late in lately if not parts.stages(late.cost_s)]
    if equals and (culprits := laggards.of_groups(equals, steps, laggards.steady)):
        return _straggling(scene, steps, equals, culprits)
    if (found := partners.slower(scene.state, steps, parts)) is None:
        return None
    worst = found.ranks[0]
    beside = [(steps.now[rank], usual) for rank, usual in steps.usual.items() if rank not in found.ranks]
    excess = slowness.against(steps.now[worst], [steps.usual[worst]], found.own_s, beside)
    made = slow_causes.of_one(scene, worst, list(found.waiting), steps.now[worst].step_s, excess)
    ranks = tuple(sorted(found.ranks))
    said = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'takes', 'take')} {1000 * found.own_s:.0f} ms a step longer"
        f" than before without waiting for anyone, and {words.wait_text(found.waiting)} meanwhile,"
        f" {because(ranks, made.why)}"
    )
    evidence = (
        *made.evidence,
        *found.evidence,
        *slowness.evidence(worst, steps.now[worst], excess, steps.usual[worst]),
    )
    cause = Cause(made.key, made.why, made.confidence, made.basis, evidence)
    return finding_of(scene, made.kind, ranks, found.waiting, said, cause, backward=slow_causes.may_be_backward(excess))


def _straggling(
    scene: Scene, steps: Current, found: list[Lateness], ranks: tuple[int, ...], seen_since_s: float = inf
) -> Finding:  # fmt: skip
    """The finding; `seen_since_s`: since when looks tell where a rank is that is late but now and then."""
    late = found[0]
    worst = max(late.cost_s, key=lambda r: late.cost_s[r])
    lost_s = late.share(worst) * steps.now[worst].step_s
    others = [r for r in late.cost_s if r in steps.now and r not in ranks]
    excess = slowness.against(steps.now[worst], [steps.now[r] for r in others], lost_s)
    made = slow_causes.of_one(scene, worst, others, steps.now[worst].step_s, excess)
    kind, key, why = made.kind, made.key, made.why
    often = len(late.lasts[worst]) >= OFTEN * late.span_s / steps.now[worst].step_s
    how = "at every step" + _growing(scene, worst, others) if often else "in bursts"
    rest = tuple(r for r in sorted({r for one in found for r in one.cost_s}) if r not in ranks)
    said = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'is', 'are')} slow {how}: the others wait"
        f" {100 * late.share(worst):.0f} % of the time for {words.verb(ranks, 'it', 'them')}, {because(ranks, why)}"
    )
    delays = late.lasts[worst] if often else _weighty(late.lasts[worst])
    by_s = lost_s if often else median(delay.by_s for delay in delays)
    said_late = (
        f"came last to {len(delays)} of {late.meetings} operations, {1000 * by_s:.0f} ms"
        f"{' a step' if often else ''} after the first, over {words.seconds_text(late.span_s)}"
    )
    evidence = (
        Evidence(said_late, late.source, worst), *made.evidence,
        *slowness.evidence(worst, steps.now[worst], excess),
    )  # fmt: skip
    cause = Cause(key, why, made.confidence, made.basis, evidence)
    # What shows in far less of its looks than the others wait for it is not what they wait for.
    beyond = looks.Beyond(seen_since_s, OFTEN * late.share(worst) if seen_since_s < inf else 0.0)
    backward = slow_causes.may_be_backward(excess)
    return finding_of(scene, kind, ranks, rest, said, cause, backward=backward, beyond=beyond)


def _weighty(delays: Sequence[Delay]) -> list[Delay]:
    """Those of which each counts: beside bursts any rank is the last one now and then, by a few milliseconds."""
    longest_s = max(delay.by_s for delay in delays)
    return [delay for delay in delays if delay.by_s >= OFTEN * longest_s]


def _growing(scene: Scene, rank: int, others: list[int]) -> str:
    if (found := growth(scene.state, rank, others)) is None:
        return ""
    ago = words.seconds_text(found.span_s)
    return f" and ever more so ({1000 * found.before_s:.0f} ms a step {ago} ago, {1000 * found.now_s:.0f} ms now)"
