"""Ranks hold different values, and one of them has gone another way: its operations meet the others' wrong ones.

In a mesh no error shows it for long. Asked only where values were found apart: a job in order needs no reason for that.
"""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.astray import ASTRAY, Stray, astray, strayed
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.history import AGREED_BEFORE
from diagd.daemon.detectors.scene import Scene

APART = ("divergence.gradient", "divergence.parameter")


def drifted(scene: Scene) -> Iterator[Finding]:
    """At most one finding, and none while ranks stand still: who is to blame for that is told by where they stand.

    The recorders that tell it are read now and then, so what was found once is kept: the weights stay wrong.
    """
    state = scene.state
    if state.from_dumps or scene.longest_s(tuple(scene.graph.waits)) >= scene.late_s:
        return
    if not strayed(state) and _is_apart(scene):
        strays = astray(scene, _groups(scene))
        # For less than that an operation of a thread in the background may be under way. In a group of all ranks, as
        # where one has left its gradients out, what it did to the values is the better word.
        if all(stray.places >= AGREED_BEFORE and _is_of_parts(scene, stray) for stray in strays):
            state.strayed = state.attempt, strays
    if known := strayed(state):
        yield _finding(scene, known)


def _is_of_parts(scene: Scene, stray: Stray) -> bool:
    groups = _groups(scene)
    return all(len(groups.get(group, ())) < scene.state.world_size for group in (stray.group, stray.other))


def _is_apart(scene: Scene) -> bool:
    """Whether values were apart at the last look at what training computes."""
    looked = scene.state.looked
    return looked is not None and any(finding.kind.startswith(APART) for finding in looked[1])


def _groups(scene: Scene) -> dict[str, tuple[int, ...]]:
    return {g.name: g.ranks for d in scene.state.details.values() for g in d.groups if len(g.ranks) > 1 and d.recorder}


def _finding(scene: Scene, strays: tuple[Stray, ...]) -> Finding:
    ranks, first = tuple(stray.rank for stray in strays), strays[0]
    who = f"{words.ranks_text(ranks)} {words.verb(ranks, 'has', 'have')}"
    text = f"{who} {first.said}: its operations there meet wrong ones, nothing hangs, and the numbers are wrong."
    evidence = tuple(
        Evidence(f"{stray.said}, at {stray.places} places in a row", "flight recorder", stray.rank) for stray in strays
    )
    why = "it alone ran, or left out, something that communicates: each of its later operations is behind or ahead"
    return Finding(
        kind="hang.collective_mismatch", severity=Severity.CRITICAL, ranks=ranks, group=first.group,
        waiting_ranks=(), names=(), summary=words.shortened(text), sure=True, goes_on=True,
        causes=(Cause(ASTRAY, why, 0.85, Basis.INFERENCE, evidence),), step=scene.step(ranks),
        since_s=scene.state.now_s, key=f"astray:{first.group}", explains=("divergence.", "numerics."),
    )  # fmt: skip
