"""A rank outside communication that shows no sign of life: what it rests in."""

import re
from dataclasses import replace

from diagd.daemon.detectors import companions, places, threads, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.life import SAME_STACK_LOOKS
from diagd.daemon.detectors.root import Root, finding_of, seen, waiting_text
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail, Stack

_HELD = re.compile(r"held by process (\d+)")
SLEEPS = frozenset({"nanosleep", "clock_nanosleep"})
_BLOCKING = frozenset({
    "read", "openat", "open", "recvfrom", "recvmsg", "flock", "fcntl", "wait4", "waitid", "poll", "select",
})  # fmt: skip
# Nobody waits, and all sleep of their own will: a pause that is meant, most often. Only a longer one is called a hang.
ASLEEP_PATIENCE = 2.5
OF_A_THREAD = 0.8  # that another thread's end is why it waits is most likely, not seen
QUEUES = {
    "get": " of a queue, in get(): nobody puts into it",
    "put": " of a queue, in put(): it is full, and nobody takes out of it",
    "join": " of a queue, in join(): what was taken out of it is not done",
}  # fmt: skip
RESTING = _BLOCKING | {"futex"}  # calls in which a thread sleeps until another does something


def is_stuck(scene: Scene, root: Root) -> bool:
    """No sign of life for as long as the user is patient, and always the same stack where it can be seen."""
    looked = root.life.same_stack_looks >= SAME_STACK_LOOKS or root.detail.stack is None
    return root.life.idle_s >= scene.state.hang_after_s and looked


def blocked(scene: Scene, root: Root) -> Finding:
    kind = "hang.data_starved" if root.starved else "hang.rank_blocked"
    if _idles_instead(scene, root):
        kind = "hang.p2p_unmatched"
    stuck = is_stuck(scene, root) and not _all_sleep(scene, root)
    severity = Severity.CRITICAL if stuck or root.failed else Severity.WARNING
    holder = _holder(scene, root)
    rests = how_it_rests(root)
    beside = "" if holder else companions.awaited(root.detail, rests)
    how = rests + (f" for a lock that {holder} holds{_where_holder_waits(scene, holder)}" if holder else beside)
    idle, signs = _idle_text(root)
    evidence = [seen(scene, root), Evidence(f"{idle}: {signs}", "kernel", root.rank)]
    if root.life.same_stack_looks >= SAME_STACK_LOOKS:
        evidence.append(Evidence(f"the same stack in {root.life.same_stack_looks} looks in a row", "stack", root.rank))
    confidence = 0.9 if severity == Severity.CRITICAL else 0.6
    said = f"has shown {idle}: " if not root.life.writes_s else f"has done {idle}: "
    ended = threads.fallen(scene, root.rank, scene.state.now_s - root.life.idle_s)
    if ended is not None and _waits_for_another_thread(root):
        why = f"it waits for what its thread would give, and {threads.said(ended)}"
        seen_first = (threads.evidence(scene, root.rank, ended), *evidence, *waiting_text(scene, root))
        cause = Cause("thread", why, min(confidence, OF_A_THREAD), Basis.INFERENCE, seen_first)
        found = finding_of(scene, root, kind, severity, cause, f"{said}{threads.said(ended)}, and it {how}")
        place = threads.place_of(ended)
        return replace(found, locations=places.starting(root.rank, place, root.locations)) if place else found
    key = "held" if holder.startswith("rank") and not root.starved else _key(root, how)
    if beside and not root.starved:
        key = companions.key_of(beside)
    evidence += companions.evidence(root.detail, rests)
    cause = Cause(key, _mechanism(root, how), confidence, Basis.OBSERVATION, (*evidence, *waiting_text(scene, root)))
    return finding_of(scene, root, kind, severity, cause, f"{said}it {how}")


def _idle_text(root: Root) -> tuple[str, str]:
    """For how long nothing was seen of it, and what was looked for."""
    life = root.life
    no_cpu = "" if life.holds_gil else ", no CPU"
    if life.writes_s:
        said = f"nothing but write lines for {words.seconds_text(life.writes_s)}"
        return said, f"no step, data, memory or child progress{no_cpu}"
    return f"no sign of life for {words.seconds_text(life.idle_s)}", f"no step, I/O, memory or child progress{no_cpu}"


def _holder(scene: Scene, root: Root) -> str:
    """Who holds the file lock that it waits for: a rank or a process of its, else a process by number."""
    stack = root.detail.stack
    found = _HELD.search(stack.note) if stack is not None else None
    if found is None:
        return ""
    pid = int(found[1])
    details = scene.state.details.values()
    rank = next((d.rank for d in details if pid == d.pid or pid in {c.pid for c in d.children}), None)
    return f"rank {rank}" if rank is not None else f"process {pid}"


def _where_holder_waits(scene: Scene, holder: str) -> str:
    """In words, where the rank that holds the lock waits itself, maybe for those that want it."""
    kind, _, number = holder.partition(" ")
    wait = scene.graph.wait(int(number)) if kind == "rank" else None
    return f" while it waits in {words.op_text(wait.op)} itself," if wait is not None else ""


def _key(root: Root, how: str) -> str:
    if root.life.holds_gil:
        return "gil"
    if root.starved:
        return "data"
    return "lock" if how.startswith(companions.LOCK) else "blocked"


def _waits_for_another_thread(root: Root) -> bool:
    """Whether it rests in a lock, as that of a queue: none of a data worker's, which is a process."""
    stack = root.detail.stack
    rests = stack is not None and how_it_rests(root).startswith(companions.LOCK)
    return rests and not places.busy_workers(root.detail)


def _all_sleep(scene: Scene, root: Root) -> bool:
    """Whether it and all others sleep of their own will, and have not done so for very long."""
    state = scene.state
    if root.dependents or root.life.idle_s >= ASLEEP_PATIENCE * state.hang_after_s:
        return False
    return all(_sleeps(state.detail(rank)) for rank in state.ranks() if not state.status(rank).gone)


def _sleeps(detail: Detail) -> bool:
    return detail.stack is not None and detail.stack.syscall in SLEEPS


def _idles_instead(scene: Scene, root: Root) -> bool:
    """Whether it sleeps of its own will where a partner is expected: nothing blocks it, it just does not come."""
    wait = next((w for d in root.dependents if (w := scene.graph.for_whom.get((d, root.rank)))), None)
    return wait is not None and wait.kind == "p2p" and _sleeps(root.detail)


def how_it_rests(root: Root) -> str:
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
        return companions.LOCK + _of_a_queue(stack)
    if syscall in _BLOCKING:
        return f"is blocked in {syscall}()"
    if syscall in SLEEPS:
        return "sleeps"
    return f"is in system call {syscall}()" if syscall else "does not move"


def _of_a_queue(stack: Stack) -> str:
    """That the lock is a queue's, and what it waits for there; empty where it is none."""
    frames = stack.main.frames[:4] if stack.main is not None else ()
    called = {f.function for f in frames if f.file.endswith(("/queue.py", "/multiprocessing/queues.py"))}
    return QUEUES.get(next(iter(called & set(QUEUES)), ""), "")


def _mechanism(root: Root, how: str) -> str:
    where = words.place_text(root.place)
    base = "its input pipeline" if root.starved else "its own code"
    return f"it is stuck in {base}: it {how}" + (f" in {where}" if where else "")
