"""A rank that took another path: it goes on, or has left the group, and never enters what the others wait in."""

from dataclasses import replace
from itertools import pairwise

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Finding, Severity
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.root import Root, finding_of, seen, waiting_text
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail

WENT_ON_STEPS = 2  # steps done since the others began to wait: it is not late, it took another path
FEW_GAPS = 2
MANY_TIMES = 10  # so many times the usual number of steps between two entries: it does not come any more


def went_on(scene: Scene, root: Root) -> bool:
    waits = [scene.graph.for_whom.get((d, root.rank)) for d in root.dependents]
    since = [w.since_s for w in waits if w is not None]
    c = scene.state.columns
    interval = float(c.step_interval_s[root.rank])
    begun = c.step[root.rank] >= 2  # before that nothing is usual
    return (
        bool(since)
        and bool(begun)
        and interval > 0
        and float(c.step_s[root.rank]) - min(since) > WENT_ON_STEPS * interval
    )


def missing(scene: Scene, root: Root, how: str) -> Finding:
    wait = next((w for d in root.dependents if (w := scene.graph.for_whom.get((d, root.rank)))), None)
    p2p = wait is not None and wait.kind == "p2p"
    what = expected(wait)
    cause = Cause("path", "it took another path in the program, past the operation", 0.85,
                  Basis.OBSERVATION, (seen(scene, root), *waiting_text(scene, root)))  # fmt: skip
    sure = root.failed or left(scene, root) or _is_elsewhere(scene, root)
    severity = Severity.CRITICAL if sure else Severity.WARNING
    if went_on(scene, root):
        root = replace(root, locations=places.in_step(root.detail, root.locations))
    return finding_of(scene, root, "hang.p2p_unmatched" if p2p else "hang.rank_missing", severity, cause,
                    f"never entered {what} and {how}")  # fmt: skip


def left(scene: Scene, root: Root) -> bool:
    """Whether it has destroyed a group that the others still wait in: it can never come."""
    wait = next((w for d in root.dependents if (w := scene.graph.for_whom.get((d, root.rank)))), None)
    left = False
    for op in root.detail.history if wait is not None else ():
        if op.name == "DESTROY" and op.returned_s is not None and op.detail in ("", wait.op.group if wait else ""):
            left = True
        elif op.name == "INIT":
            left = False
    return left


def expected(wait: Wait | None) -> str:
    """The operation that the rank should have entered."""
    if wait is None:
        return "an operation"
    if wait.kind != "p2p":
        return words.op_text(wait.op)
    return f"the {'RECV' if wait.op.name == 'SEND' else 'SEND'} for rank {wait.rank}'s {wait.op.name}"


def _is_elsewhere(scene: Scene, root: Root) -> bool:
    """Whether it has let the operation pass far more often than its own past allows: not late, but on another path.

    A rank that enters the group at every step and has made many steps without it will not come; one that meets an
    evaluator in a rare barrier has not.
    """
    c, rank = scene.state.columns, root.rank
    waits = [w for d in root.dependents if (w := scene.graph.for_whom.get((d, rank))) is not None]
    if not waits or c.step_interval_s[rank] <= 0:
        return False
    wait = min(waits, key=lambda w: w.since_s)
    if wait.kind == "p2p":
        usual_s = _usual_gap_s(root.detail, wait)
        return 0 < usual_s * MANY_TIMES <= scene.age_s(wait)
    entered = scene.ledger.entered(wait.op.group, rank)
    steps_since = (float(c.step_s[rank]) - wait.since_s) / float(c.step_interval_s[rank])
    if entered <= 0:
        return False
    usual_steps = max(int(c.step[rank]) - steps_since, 1.0) / entered
    return steps_since >= MANY_TIMES * max(usual_steps, 1.0)


def _usual_gap_s(detail: Detail, wait: Wait) -> float:
    """The median time between the rank's own operations with the waiting one; 0 where too few are known."""
    at_s = [op.entered_s for op in detail.history if op.p2p and op.peer in (wait.rank, -1)]
    gaps = sorted(after - before for before, after in pairwise(at_s))
    return gaps[len(gaps) // 2] if len(gaps) >= FEW_GAPS else 0.0


def passed_by(found: list[Finding]) -> Finding:
    """One finding for all ranks that never entered the same operation."""
    first, ranks = found[0], tuple(sorted(r for f in found for r in f.ranks))
    said = (
        first.summary.partition(" never entered ")[2]
        .replace("goes on with its own", "go on with their own")
        .replace("has left", "have left")
    )
    evidence = tuple(e for f in found for e in f.causes[0].evidence)
    return replace(
        first,
        severity=min((f.severity for f in found), key=lambda s: s.order),
        ranks=ranks,
        waiting_ranks=tuple(sorted({r for f in found for r in f.waiting_ranks} - set(ranks))),
        summary=words.shortened(f"{words.ranks_text(ranks)} never entered {said}"),
        causes=(replace(first.causes[0], evidence=evidence),),
        locations=tuple(place for f in found for place in f.locations),
        key=f"missing:{first.group}#{first.op_name}#{first.op_seq}",
    )
