"""The root of the waits is a rank outside communication: stopped, stuck, starved of data, or only late."""

from dataclasses import dataclass, replace
from itertools import pairwise

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.life import SAME_STACK_LOOKS, Life, life_of
from diagd.daemon.detectors.position import Wait, is_stopped, rests_in_communication
from diagd.daemon.detectors.scene import FIRST_STEP_LATE_S, LATE_S, Scene
from diagd.daemon.state.model import Detail, Frame

STOPPED_S = 2.0
QUIET_S = 3.0  # no sign of life for so long: it is called stuck already, but only as likely
WENT_ON_STEPS = 2  # steps done since the others began to wait: it is not late, it took another path
FEW_GAPS = 2
MANY_TIMES = 10  # so many times the usual number of steps between two entries: it does not come any more
_SLEEPS = frozenset({"nanosleep", "clock_nanosleep"})
_PAUSES = ("checkpoint", "eval")  # one rank is expected to be late in these


@dataclass(frozen=True, slots=True)
class Root:
    """A rank that others wait for (or that stands still alone), and what is known of it."""

    rank: int
    detail: Detail
    life: Life
    dependents: tuple[int, ...]
    waited_s: float
    failed: bool  # the others' waits have already ended in errors
    starved: bool
    locations: tuple[Location, ...]

    @property
    def place(self) -> Frame | None:
        """Its innermost user frame."""
        return places.first(self.locations)


def outside(scene: Scene, rank: int) -> Finding | None:
    """The finding for a rank outside communication; None while all may be well."""
    root = _root(scene, rank)
    if scene.state.status(rank).gone and rests_in_communication(root.detail):
        return None  # it fell inside an operation: it was not late
    if root.detail.debugger:
        return _held(scene, root)
    if is_stopped(scene.state, rank):
        return _stopped(scene, root)
    if not root.dependents and not _stands_still_alone(scene, root):
        return None
    if root.waited_s < _late_s(scene, root) and not root.failed and not _stuck(scene, root):
        return None
    if _left(scene, root):
        return _missing(scene, root, "has left the group")
    if _went_on(scene, root):
        return _missing(scene, root, "goes on with its own steps")
    if root.life.idle_s >= QUIET_S or _stuck(scene, root):
        return _blocked(scene, root)
    return _late(scene, root)


def _root(scene: Scene, rank: int) -> Root:
    detail = scene.state.detail(rank)
    dependents = scene.graph.waiting_for((rank,))
    phase = scene.state.phases[rank] if rank < len(scene.state.phases) else "other"
    return Root(
        rank, detail, life_of(scene.state, rank), dependents, scene.longest_s(dependents), scene.failed(dependents),
        places.in_data_loader(detail) or (phase == "data" and detail.stack is None), places.outside(detail),
    )  # fmt: skip


def _late_s(scene: Scene, root: Root) -> float:
    step = int(scene.state.columns.step[root.rank])
    return FIRST_STEP_LATE_S if step < 1 and root.life.idle_s < QUIET_S else scene.late_s


def _stands_still_alone(scene: Scene, root: Root) -> bool:
    """No one waits for it, and nothing in the job has moved for as long as anyone is patient.

    While another rank works, this one may wait for it by means that are not seen, such as the lock of a compilation.
    """
    state = scene.state
    if root.life.idle_s < state.hang_after_s:
        return False
    others = [r for r in state.ranks() if not state.status(r).gone and not scene.graph.waits.get(r)]
    return all(life_of(state, r).idle_s >= state.hang_after_s for r in others)


def _stuck(scene: Scene, root: Root) -> bool:
    """No sign of life for as long as the user is patient, and always the same stack where it can be seen."""
    looked = root.life.same_stack_looks >= SAME_STACK_LOOKS or root.detail.stack is None
    return root.life.idle_s >= scene.state.hang_after_s and looked


def _went_on(scene: Scene, root: Root) -> bool:
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


def _left(scene: Scene, root: Root) -> bool:
    """Whether it has destroyed a group that the others still wait in: it can never come."""
    wait = next((w for d in root.dependents if (w := scene.graph.for_whom.get((d, root.rank)))), None)
    left = False
    for op in root.detail.history if wait is not None else ():
        if op.name == "DESTROY" and op.returned_s is not None and op.detail in ("", wait.op.group if wait else ""):
            left = True
        elif op.name == "INIT":
            left = False
    return left


def _missing(scene: Scene, root: Root, how: str) -> Finding:
    wait = next((w for d in root.dependents if (w := scene.graph.for_whom.get((d, root.rank)))), None)
    p2p = wait is not None and wait.kind == "p2p"
    what = _expected(wait)
    cause = Cause("path", "it took another path in the program, past the operation", 0.85,
                  Basis.OBSERVATION, (_seen(scene, root), *_waiting(scene, root)))  # fmt: skip
    sure = root.failed or _left(scene, root) or _is_elsewhere(scene, root)
    severity = Severity.CRITICAL if sure else Severity.WARNING
    if _went_on(scene, root):
        root = replace(root, locations=places.in_step(root.detail, root.locations))
    return _finding(scene, root, "hang.p2p_unmatched" if p2p else "hang.rank_missing", severity, cause,
                    f"never entered {what} and {how}")  # fmt: skip


def _expected(wait: Wait | None) -> str:
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
    return _finding(scene, root, "hang.rank_stopped", Severity.INFO, cause, f"is held by {root.detail.debugger}")


def _stopped(scene: Scene, root: Root) -> Finding | None:
    since = root.life.idle_s
    everyone = all(is_stopped(scene.state, r) for r in scene.state.ranks())
    if since < STOPPED_S and not root.failed:
        return None
    severity = Severity.WARNING if everyone else Severity.CRITICAL  # all at once: a person suspended the job
    seen = Evidence("process state T (stopped)", "kernel", root.rank, scene.step((root.rank,)))
    cause = Cause("stopped", "its process is stopped: by SIGSTOP, job control, a debugger or a freezer", 0.95,
                  Basis.OBSERVATION, (seen,
                                      *_waiting(scene, root)))  # fmt: skip
    found = _finding(scene, root, "hang.rank_stopped", severity, cause, "is stopped (process state T)", sure=True)
    return _suspended(found, tuple(scene.state.ranks())) if everyone and scene.state.world_size > 1 else found


def _suspended(found: Finding, ranks: tuple[int, ...]) -> Finding | None:
    """One finding for all, made with the first of them."""
    if found.ranks[0] != ranks[0]:
        return None
    text = f"{words.ranks_text(ranks)} are all stopped (process state T): the job is suspended as a whole."
    return replace(found, ranks=ranks, waiting_ranks=(), summary=text, key="suspended")


def _blocked(scene: Scene, root: Root) -> Finding:
    kind = "hang.data_starved" if root.starved else "hang.rank_blocked"
    if _idles_instead(scene, root):
        kind = "hang.p2p_unmatched"
    severity = Severity.CRITICAL if _stuck(scene, root) or root.failed else Severity.WARNING
    how = _how(root)
    evidence = [
        _seen(scene, root),
        Evidence(
            f"no sign of life for {words.seconds_text(root.life.idle_s)}: no step, I/O, "
            "memory or child progress" + ("" if root.life.holds_gil else ", no CPU"),
            "kernel",
            root.rank,
        ),
    ]
    if root.life.same_stack_looks >= SAME_STACK_LOOKS:
        evidence.append(Evidence(f"the same stack in {root.life.same_stack_looks} looks in a row", "stack", root.rank))
    key = (
        "gil"
        if root.life.holds_gil
        else "data"
        if root.starved
        else "lock"
        if how.startswith("waits for a lock")
        else "blocked"
    )
    confidence = 0.9 if severity == Severity.CRITICAL else 0.6
    cause = Cause(key, _mechanism(root, how), confidence, Basis.OBSERVATION, (*evidence, *_waiting(scene, root)))
    said = f"has shown no sign of life for {words.seconds_text(root.life.idle_s)}: it {how}"
    return _finding(scene, root, kind, severity, cause, said)


def _idles_instead(scene: Scene, root: Root) -> bool:
    """Whether it sleeps of its own will where a partner is expected: nothing blocks it, it just does not come."""
    wait = next((w for d in root.dependents if (w := scene.graph.for_whom.get((d, root.rank)))), None)
    stack = root.detail.stack
    return wait is not None and wait.kind == "p2p" and stack is not None and stack.syscall in _SLEEPS


def _how(root: Root) -> str:
    """What the rank rests in, from its syscall and innermost frames."""
    stack = root.detail.stack
    if root.life.holds_gil:
        return "holds the GIL inside one call" + (" and computes" if root.life.busy else "")
    workers = places.busy_workers(root.detail) if root.starved else []
    if workers:
        return f"waits for its data worker {workers[0].pid}, which is stuck"
    dead = [c for c in root.detail.children if c.in_data_loader and (c.exit or c.state == "Z")]
    if root.starved and dead:
        return f"waits for its data worker {dead[0].pid}, which is dead ({dead[0].exit or 'zombie'})"
    if stack is None:
        return "does not move"
    inner = stack.main.frames[0].function if stack.main is not None and stack.main.frames else ""
    syscall = stack.syscall
    if syscall == "futex" or inner in ("acquire", "__enter__"):
        return "waits for a lock"
    if syscall in (
        "read",
        "openat",
        "open",
        "recvfrom",
        "recvmsg",
        "flock",
        "fcntl",
        "wait4",
        "waitid",
        "poll",
        "select",
    ):
        return f"is blocked in {syscall}()"
    return f"is in system call {syscall}()" if syscall else "does not move"


def _mechanism(root: Root, how: str) -> str:
    where = words.place_text(root.place)
    base = "its input pipeline" if root.starved else "its own code"
    return f"it is stuck in {base}: it {how}" + (f" in {where}" if where else "")


def _late(scene: Scene, root: Root) -> Finding:
    """Alive and late: speed, not a hang, unless the wait has already brought the job down."""
    rank = root.rank
    phase = scene.state.phases[rank]
    io = "it reads or writes" in root.life.signs and not root.life.busy
    kind = "slow.data" if root.starved else "slow.host" if io else "slow.straggler"
    severity = Severity.CRITICAL if root.failed else Severity.INFO if phase in _PAUSES else Severity.WARNING
    signs = ", ".join(root.life.signs) or "signs of life"
    cause = Cause("late", f"it is late but alive ({signs}), in phase {phase}", 0.8, Basis.OBSERVATION,
                  (_seen(scene, root), *_waiting(scene, root)))  # fmt: skip
    said = f"is late but alive ({signs})"
    if root.failed:
        said += "; the others' wait ran out"
    return _finding(scene, root, kind, severity, cause, said)


def _seen(scene: Scene, root: Root) -> Evidence:
    where = words.place_text(root.place)
    phase = scene.state.phases[root.rank]
    source = "stack" if root.detail.stack is not None else "probe"
    return Evidence(
        f"in {where}, phase {phase}" if where else f"in phase {phase}", source, root.rank, scene.step((root.rank,))
    )


def _waiting(scene: Scene, root: Root) -> tuple[Evidence, ...]:
    found = []
    for dependent in root.dependents[:3]:
        wait = scene.graph.wait(dependent)
        if wait is not None:
            text = f"in {words.op_text(wait.op)} for {words.seconds_text(scene.age_s(wait))}"
            found.append(Evidence(text, wait.op.source, dependent, scene.step((dependent,))))
    return tuple(found)


def _finding(
    scene: Scene, root: Root, kind: str, severity: Severity, cause: Cause, said: str, sure: bool = False
) -> Finding:  # fmt: skip
    wait = next((w for d in root.dependents if (w := scene.graph.for_whom.get((d, root.rank)))), None)
    where = words.place_text(root.place)
    summary = f"rank {root.rank} {said}" + (f" in {where}" if where else "")
    if wait is not None:
        summary += f"; {words.wait_text(root.dependents)} in {words.op_text(wait.op)}"
        summary += f" for {words.seconds_text(root.waited_s)}" if root.waited_s >= LATE_S else ""
    return Finding(
        kind=kind,
        severity=severity,
        ranks=(root.rank,),
        waiting_ranks=root.dependents,
        group=wait.op.group or None if wait is not None else None,
        op_name=wait.op.name if wait is not None else "",
        op_seq=wait.op.seq if wait is not None else 0,
        names=("worker",) if root.starved and places.busy_workers(root.detail) else (),
        summary=words.shortened(summary + "."),
        locations=root.locations,
        causes=(cause,),
        step=scene.step((root.rank,)),
        sure=sure,
        times_out_s=scene.times_out_s(root.dependents),
        since_s=scene.state.now_s - max(root.waited_s, root.life.idle_s if not root.dependents else 0.0),
        key=f"root:{root.rank}",
    )
