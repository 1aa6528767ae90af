"""The root of the waits is a rank outside communication: stopped, stuck, starved of data, or only late."""

from dataclasses import replace

from diagd.daemon.detectors import dumped, elsewhere, words
from diagd.daemon.detectors.attention import BEGUN
from diagd.daemon.detectors.backend import rests_in_communication
from diagd.daemon.detectors.blocked import blocked, is_stuck
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.life import SAME_STACK_LOOKS, life_of
from diagd.daemon.detectors.polling import polling
from diagd.daemon.detectors.position import is_stopped
from diagd.daemon.detectors.root import Root, finding_of, root_of, seen, waiting_text
from diagd.daemon.detectors.scene import FIRST_STEP_LATE_S, Scene

STOPPED_S = 2.0
QUIET_S = 3.0  # no sign of life for so long: it is called stuck already, but only as likely
# A dying rank's connections close first and its end is seen some seconds later: so long a broken wait is not yet
# laid to a rank that seems alive.
DYING_S = 5.0
LOOKS_S = 5.0  # by then a rank that stands still has been looked at often enough, if it can be
RAN_OUT_S = 1.0  # no time-out of a wait is shorter
_PAUSES = ("checkpoint", "eval")  # one rank is expected to be late in these


def outside(scene: Scene, rank: int) -> Finding | None:
    """The finding for a rank outside communication; None while all may be well."""
    root = root_of(scene, rank)
    if scene.state.status(rank).gone and rests_in_communication(root.detail):
        return None  # it fell inside an operation: it was not late
    if _is_leaving(root):
        return None  # its end says what is wrong, once it is there
    if root.detail.debugger:
        return _held(scene, root)
    if is_stopped(scene.state, rank):
        return _stopped(scene, root)
    if not root.life.known:
        return dumped.never_entered(scene, root)
    if not root.dependents and not _stands_still_alone(scene, root):
        return None
    if root.waited_s < _late_s(scene, root) and not root.failed and not is_stuck(scene, root):
        return None
    if elsewhere.left(scene, root):
        return elsewhere.missing(scene, root, "has left the group")
    if elsewhere.went_on(scene, root):
        return elsewhere.missing(scene, root, "goes on with its own steps")
    if not (root.life.settled or root.life.signs or root.failed):
        return None  # whoever watches it has just begun to
    if root.life.idle_s >= QUIET_S or is_stuck(scene, root):
        return blocked(scene, root)
    return polling(scene, root) or _late(scene, root)


def _is_leaving(root: Root) -> bool:
    """Whether its program is over: with torch, some seconds pass between that and the end of the process."""
    ending = root.detail.ending
    return root.detail.in_shutdown_s is not None or (ending is not None and ending.what in ("exception", "exit"))


def _late_s(scene: Scene, root: Root) -> float:
    c = scene.state.columns
    begins = int(c.step[root.rank]) < 1 and int(c.operations[root.rank]) < BEGUN
    return FIRST_STEP_LATE_S if begins and root.life.idle_s < QUIET_S else scene.late_s


def _stands_still_alone(scene: Scene, root: Root) -> bool:
    """No one waits for it, and nothing in the job has moved for as long as anyone is patient.

    While another rank works, this one may wait for it by means that are not seen, such as the lock of a compilation.
    """
    state = scene.state
    if root.life.idle_s < state.hang_after_s:
        return False
    others = [r for r in state.ranks() if not state.status(r).gone and not scene.graph.waits.get(r)]
    return all(_settled(scene, r) for r in others)


def _settled(scene: Scene, rank: int) -> bool:
    """Whether it is known by now if this rank stands still too: else the first of several would be named alone."""
    life = life_of(scene.state, rank)
    looked = life.same_stack_looks >= SAME_STACK_LOOKS or scene.state.detail(rank).stack is None
    over_s = life.idle_s - scene.state.hang_after_s
    return over_s >= 0 and (looked or over_s >= LOOKS_S)


def alike(found: list[Finding]) -> Finding:
    """One finding for all ranks that rest in the same way at the same place."""
    worst = min(found, key=lambda f: (f.severity.order, f.ranks))
    ranks = tuple(sorted(r for f in found for r in f.ranks))
    waiting = tuple(sorted({r for f in found for r in f.waiting_ranks} - set(ranks)))
    said = worst.summary.partition(f"rank {worst.ranks[0]} ")[2].partition("; ")[0].rstrip(".")
    summary = f"{words.ranks_text(ranks)}, each: {said}" + (f"; {words.wait_text(waiting)} for them" if waiting else "")
    return replace(
        worst,
        ranks=ranks,
        waiting_ranks=waiting,
        summary=words.shortened(summary + "."),
        causes=(replace(worst.causes[0], evidence=tuple(e for f in found for e in f.causes[0].evidence)),),
        locations=tuple(place for f in found for place in f.locations),
        key="roots:" + ",".join(map(str, ranks)),
    )


def _held(scene: Scene, root: Root) -> Finding:
    cause = Cause("debugger", f"a person holds it: {root.detail.debugger}", 0.95, Basis.OBSERVATION,
                  (Evidence(f"held by {root.detail.debugger}", "kernel", root.rank),))  # fmt: skip
    return finding_of(scene, root, "hang.rank_stopped", Severity.INFO, cause, f"is held by {root.detail.debugger}")


def _stopped(scene: Scene, root: Root) -> Finding | None:
    since = root.life.idle_s if root.life.known else STOPPED_S
    everyone = all(is_stopped(scene.state, r) for r in scene.state.ranks())
    if since < STOPPED_S and not root.failed:
        return None
    # It may go on as suddenly as it came: said within seconds, and a fault only once it is longer than one is patient
    # with. All at once: a person suspended the job.
    lasts = root.failed or not root.life.known or since >= scene.state.hang_after_s
    severity = Severity.CRITICAL if lasts and not everyone else Severity.WARNING
    process = f"process {root.detail.pid}{f' on {root.detail.host}' if root.detail.host else ''}"
    seen = Evidence(f"{process} is in state T (stopped)", "kernel", root.rank, scene.step((root.rank,)))
    cause = Cause("stopped", "its process is stopped: by SIGSTOP, job control, a debugger or a freezer", 0.95,
                  Basis.OBSERVATION, (seen,
                                      *waiting_text(scene, root)))  # fmt: skip
    found = finding_of(scene, root, "hang.rank_stopped", severity, cause, "is stopped (process state T)", sure=True)
    return _suspended(found, tuple(scene.state.ranks())) if everyone and scene.state.world_size > 1 else found


def _suspended(found: Finding, ranks: tuple[int, ...]) -> Finding | None:
    """One finding for all, made with the first of them."""
    if found.ranks[0] != ranks[0]:
        return None
    text = f"{words.ranks_text(ranks)} are all stopped (process state T): the job is suspended as a whole."
    return replace(found, ranks=ranks, waiting_ranks=(), summary=text, key="suspended")


def _late(scene: Scene, root: Root) -> Finding | None:
    """Alive and late: speed, not a hang, unless the wait has already brought the job down.

    Those that wait for it themselves say how late it is; who waits for one of them may do so by the job's design, as an
    evaluator does for weights.
    """
    rank = root.rank
    direct = [scene.age_s(w) for d in root.dependents if (w := scene.graph.for_whom.get((d, rank))) is not None]
    if direct and max(direct) < _late_s(scene, root) and not root.failed:
        return None
    if root.failed and scene.longest_s(root.dependents) - scene.broken_for_s(root.dependents) < RAN_OUT_S:
        return None  # it broke at once: that comes of no lateness
    phase = scene.state.phases[rank]
    io = "it reads or writes" in root.life.signs and not root.life.busy
    kind = "slow.data" if root.starved else "slow.host" if io else "slow.straggler"
    fell = root.failed and (scene.state.ended_s is not None or scene.broken_for_s(root.dependents) >= DYING_S)
    severity = Severity.CRITICAL if fell else Severity.INFO if phase in _PAUSES else Severity.WARNING
    signs = ", ".join(root.life.signs) or "signs of life"
    cause = Cause("late", f"it is late but alive ({signs})", 0.8, Basis.OBSERVATION,
                  (seen(scene, root), *waiting_text(scene, root)))  # fmt: skip
    said = f"is late but alive ({signs})"
    if fell:
        said += "; the others' wait ran out"
    return finding_of(scene, root, kind, severity, cause, said)
