"""All ranks that take longer than they did, and not because they have more to compute."""

from statistics import median

from diagd.daemon.detectors import slowness, volume, words
from diagd.daemon.detectors.finding import Basis, Cause, Finding
from diagd.daemon.detectors.lateness import lateness
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.slow_causes import of_all
from diagd.daemon.detectors.slow_finding import because, finding_of
from diagd.daemon.detectors.slowness import Current, is_slowed

SOME_PART = 0.3  # of it, for a rank whose steps are as long as the others' because it waits for them
KNOWN_PART = 0.9  # of the ranks
PACE = 0.5  # of the others' steps


def slowed(scene: Scene, steps: Current, least_part: float = SOME_PART) -> Finding | None:
    """All ranks' steps take longer than they did, and not because they have more to compute.

    Args:
        least_part: Of what a rank's steps take longer, for it to be named where its input is late.
    """
    known = {r: (steps.now[r], steps.usual[r]) for r in steps.usual}
    slowed = {r: pair for r, pair in known.items() if is_slowed(*pair)}
    if not known or len(known) < KNOWN_PART * len(steps.now) or len(slowed) < KNOWN_PART * len(known):
        return None  # of some it is not known, or they are as fast as ever
    excess = {r: slowness.against(now, [usual], now.step_s - usual.step_s) for r, (now, usual) in slowed.items()}
    # Of these very steps: meetings from before they became slow would tell of ranks that come together.
    met = lateness(scene.state, min(now.since_s for now, _ in slowed.values()))
    grown = volume.grown(scene.state, {r: usual for r, (_, usual) in slowed.items()})
    made = of_all(scene, excess, met, {r: steps.now[r].paused_s for r in excess}, grown)
    if made is None:
        return None
    kind, key, why = made
    if key == "communication" and _has_others(scene, list(known)):
        return None  # whom these may wait for
    ranks = tuple(sorted(r for r, e in excess.items() if key != "data" or e.part("data") >= least_part))
    now_s = median(now.step_s for now, _ in slowed.values())
    usual_s = median(usual.step_s for _, usual in slowed.values())
    said = (
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'takes', 'take')} {1000 * now_s:.0f} ms a step where "
        f"{1000 * usual_s:.0f} ms were shown before, {because(ranks, why)}"
    )
    evidence = tuple(e for r in ranks[:3] for e in slowness.evidence(r, slowed[r][0], excess[r], slowed[r][1]))
    return finding_of(scene, kind, ranks, (), said, Cause(key, why, 0.8, Basis.OBSERVATION, evidence))


def _has_others(scene: Scene, ranks: list[int]) -> bool:
    """Whether there are ranks of another pace, as actors beside learners: when they come is nowhere to be seen."""
    steps = scene.state.columns.step
    least = PACE * min(int(steps[r]) for r in ranks)
    others = set(scene.state.ranks()) - set(ranks)
    return any(not scene.state.status(r).gone and int(steps[r]) < least for r in others)
