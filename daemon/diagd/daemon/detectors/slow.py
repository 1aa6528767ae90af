"""Progress, but below what the job has shown it can do: one rank that the others wait for, or all of them at once."""

from collections.abc import Iterator

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.laggards import NEAR
from diagd.daemon.detectors.lateness import Lateness, lateness
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.slow_all import SOME_PART, slowed
from diagd.daemon.detectors.slow_links import slow_link
from diagd.daemon.detectors.slow_ranks import late_ones
from diagd.daemon.detectors.slowness import CURRENT_S, Current, pace_of

STRETCH_STEPS = 16  # a little more than so many meetings, where there is one a step


def slow(scene: Scene) -> Iterator[Finding]:
    """At most one finding, and none while the job stands still: that is another matter."""
    state = scene.state
    stands = scene.longest_s(tuple(scene.graph.waits)) >= scene.late_s
    if state.from_dumps or state.ended_s is not None or stands:
        return
    if any(state.status(r).gone or state.detail(r).in_shutdown_s is not None for r in state.ranks()):
        return  # there is nobody left to compare with, and what was found stands
    steps = pace_of(scene.state)
    if not steps.now:
        return
    told_s = max(state.paces[r].arrived_s or state.now_s for r in steps.now)
    longest_s = max(rates.step_s for rates in steps.now.values())
    lately = lateness(state, min(told_s, state.now_s) - max(CURRENT_S, STRETCH_STEPS * longest_s))
    # A slow link first: its ranks come late to others because of it.
    found = slow_link(scene, steps) or _of_ranks(scene, steps, lately)
    if found is not None:
        yield found


def _of_ranks(scene: Scene, steps: Current, lately: list[Lateness]) -> Finding | None:
    """One rank or all of them; all where each lost most of its time to its own input, though one lost a little more."""
    late = late_ones(scene, steps, lately)
    if late is not None and late.kind != "slow.data":
        return late
    together = slowed(scene, steps, SOME_PART if late is None else NEAR)
    if late is None or (together is not None and together.kind == late.kind and {*together.ranks} > {*late.ranks}):
        return together
    return late
