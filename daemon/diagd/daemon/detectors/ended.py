"""A rank's process ended while others go on, wait or fell after it."""

from collections.abc import Iterator
from dataclasses import replace

from diagd.daemon.detectors import places, threads, words
from diagd.daemon.detectors.deaths import CRASHES, Death, first_deaths, was_interrupted, was_refused
from diagd.daemon.detectors.fallen import OWN_SOCKET
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.ledger import UNNAMED
from diagd.daemon.detectors.memory import newest
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.victims import victims_of
from diagd.daemon.state.model import Ending, Exit

LOST_WORKER = "DataLoader worker (pid"  # as torch begins it; what a worker itself raises it hands on as that
UNREDUCED = "Expected to have finished reduction in the prior iteration"  # of DDP's reducer, at the next forward pass
# As the kernel says it, and torch where a worker's batch comes without the descriptors that it was sent with.
TOO_MANY_FILES = "Too many open files", "received 0 items of ancdata"
GROWTH_RATIO = 1.5  # memory grew by half or more before a kill: worth saying
STILL_GROWS_RATIO = 1.1  # and by so much in the last seconds: what levelled off before did not kill it
LATELY_S = 3.0
MIB = 1024 * 1024


def ended(scene: Scene) -> Iterator[Finding]:
    """One finding for the death (or the like deaths) that explains the others."""
    deaths = first_deaths(scene)
    if deaths:
        yield _finding(scene, deaths)


def unexplained(scene: Scene) -> Iterator[Finding]:
    """The job failed, and each rank by what looks like a consequence: the first is named, and said to be no more."""
    state = scene.state
    if state.ended_s is None or state.exit_code in (0, None) or state.stopping_s is not None or first_deaths(scene):
        return
    fallen = [
        Death(r, d, d.exit, "exit.killed" if d.exit.signal else "exit.error")
        for r, d in state.processes().items()
        if d.attempt == state.attempt and d.exit is not None and (d.exit.code or d.exit.signal in _CRASHES)
    ]
    if not fallen:
        return
    found = _finding(scene, [min(fallen, key=lambda d: d.began_s)])
    text = "it was the first to fall, in an operation with the others; why that broke is not known"
    cause = replace(found.causes[0], text=text, confidence=0.4, basis=Basis.INFERENCE)
    yield replace(found, causes=(cause,))


_CRASHES = CRASHES | {"SIGKILL"}


def _finding(scene: Scene, deaths: list[Death]) -> Finding:
    first, ranks = deaths[0], tuple(sorted(d.rank for d in deaths))
    dependents = _dependents(scene, ranks)
    locations = tuple(p for d in deaths if not d.after_all for p in places.at_end(d.detail, scene.last_step(d.rank)))
    kept = threads.keeping(first.detail) if first.detail.exit is None else None
    if kept is not None:
        locations = (*locations, *(Location(first.rank, frame) for frame in kept.user_frames[:1]))
    wait = next((w for d in dependents if (w := scene.graph.wait(d)) is not None), None)
    where = words.place_text(places.first(locations))
    text = f"{words.ranks_text(ranks)} {_said(first, where)}"
    if dependents:
        text += f"; {_wait_text(scene, ranks, dependents)}"
    if kept is not None:
        text += f"; its thread {kept.name!r} in {words.place_text(kept.user_frames[0])} keeps the process there"
    ending = first.detail.ending
    return Finding(
        kind=first.kind, severity=Severity.CRITICAL, ranks=ranks, waiting_ranks=dependents,
        group=wait.op.group or None if wait is not None else None,
        op_name=wait.op.name if wait is not None and wait.op.name != UNNAMED else "",
        op_seq=wait.op.seq if wait is not None else 0,
        names=tuple(n for n in (ending.type if ending is not None else "", first.exit.signal) if n),
        summary=words.shortened(text + "."), locations=locations, causes=tuple(_causes(scene, deaths)),
        step=scene.step(ranks), sure=True, since_s=first.began_s, key=f"end:{first.detail.attempt}",
    )  # fmt: skip


def _wait_text(scene: Scene, ranks: tuple[int, ...], dependents: tuple[int, ...]) -> str:
    victims = victims_of(scene, ranks, dependents)
    if victims.direct and not victims.alike:
        return victims.clauses()
    text = f"{words.wait_text(dependents)} for {words.verb(ranks, 'it', 'them')}"
    return text + (f" in {victims.direct[0][0]}" if victims.direct else "")


def _dependents(scene: Scene, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Who waits for these, also inside the operation in which one of them was killed."""
    waits = scene.graph.waits
    theirs = [w.op for r in ranks for w in waits.get(r, ()) if w.kind == "collective" and w.op.seq > 0]
    first = {op.group: op.seq for op in sorted(theirs, key=lambda op: -op.seq)}
    mates = {r for r, found in waits.items() if any(0 < first.get(w.op.group, 0) <= w.op.seq for w in found)}
    mates -= set(ranks)
    return tuple(sorted({*mates, *scene.graph.waiting_for((*ranks, *mates))} - set(ranks)))


def _said(death: Death, where: str) -> str:
    """In words, with the place where there is one."""
    ending, end, at = death.detail.ending, death.exit, f" in {where}" if where else ""
    if death.after_all:
        return f"crashed ({end.signal}) while its interpreter shut down, after its script had ended{at}"
    if death.kind == "exit.killed":
        by = "by the out-of-memory killer " if end.oom_killed else ""
        last = f" (last seen{at})" if where and (ending is None or not ending.frames) else at
        return f"was killed {by}({end.signal or 'signal not seen'}){last}"
    if death.kind == "exit.early":
        left = (
            "has left its program and is in interpreter shutdown"
            if death.detail.exit is None
            else "left with exit code 0"
        )
        return f"{left}{f' (last seen{at})' if where else ''} while others still work"
    if ending is not None and ending.raised:
        first_line = ending.message.partition("\n")[0]
        return f"failed with {ending.type}: {words.shortened(first_line, 120)}{at}"
    said = f": {words.shortened(ending.message, 120)}" if ending is not None and ending.message else ""
    code = end.code if end.code is not None else ending.code if ending is not None else None
    return f"ended with exit code {code}{at}{said}" if code is not None else f"ended, its exit code was not seen{at}"


def _causes(scene: Scene, deaths: list[Death]) -> Iterator[Cause]:
    death = deaths[0]
    detail, end, step = death.detail, death.exit, scene.step((death.rank,))
    evidence = []
    ending = detail.ending
    if detail.exit is not None:
        source = end.seen_by or "kernel"
        evidence.append(Evidence(f"the process ended: {end}", source, death.rank, step))
    if noted := _noted(ending, detail.exit is None, end.code):
        evidence.append(Evidence(noted, "probe", death.rank, step))
    growth = _growth(death)
    if growth:
        evidence.append(growth)
    if end.oom_killed:
        evidence.append(Evidence("the memory cgroup counts an oom_kill", "kernel", death.rank, step))
    sure = 0.95 if end.signal or end.code is not None or ending is not None else 0.6
    key, text = _mechanism(scene, deaths, growth is not None)
    yield Cause(key, text, sure, Basis.OBSERVATION, tuple(evidence))


def _noted(ending: Ending | None, alive: bool, code: int | None) -> str:
    """In words, what the process itself noted of its end."""
    if ending is not None and ending.raised:
        how = "uncaught" if ending.what == "exception" else f"exit called with {ending.code} in the handler of"
        return f"{how} {ending.type}: {words.shortened(ending.message, 200)}"
    if ending is not None and ending.what == "exit":
        why = f" in the handler of {ending.type}: {words.shortened(ending.message, 200)}" if ending.type else ""
        return f"exit called with {ending.code}{why}" + (
            "; the process is in the interpreter's shutdown" if alive else ""
        )
    begun = alive or (ending is not None and ending.what == "shutdown")
    end = "" if code else ": the script had come to its end"  # or to a SystemExit, which leaves no trace in it
    return f"the interpreter's shutdown had begun{end}" if begun else ""


def _mechanism(scene: Scene, deaths: list[Death], grew: bool) -> tuple[str, str]:
    death = deaths[0]
    end = death.exit
    if death.kind == "exit.early" and _held_a_store(scene, death):
        return "host", "the store that the others still ask ended with it: it had made that (TCPStore), and serves it"
    if death.kind == "exit.early":
        return _how_it_left(death)
    message = death.detail.ending.message if death.detail.ending is not None else ""
    if death.kind == "exit.error" and any(said in message for said in OWN_SOCKET):
        return "port", "it was to listen on a port that it did not get: something else on its host has it"
    if death.kind == "exit.error" and any(said in message for said in TOO_MANY_FILES):
        return "descriptors", _open_files(scene, death.rank)
    if death.kind == "exit.error" and was_refused(death.detail):
        return _refused(death)
    if death.kind == "exit.error" and scene.state.world_size <= 1:
        return "alone", "its own code failed"
    if death.kind == "exit.error" and UNREDUCED in message:
        return (
            "unused",
            "in the step before, parameters of its model took no part in the loss, on this rank alone or on some: DDP"
            " still waits for their gradients",
        )
    if death.kind == "exit.error" and _lost_worker(death):
        return "worker", f"a data worker of it was ended{_by(death)}: no error of the script's own code raised that"
    if death.kind == "exit.error" and was_interrupted(death.detail):
        return (
            "interrupted",
            "it alone was interrupted, as by SIGINT: its own code did that (a watchdog thread, interrupt_main), or"
            " somebody sent it the signal",
        )
    if death.kind == "exit.error" and len(deaths) == scene.state.world_size:
        return "everywhere", "each rank's own code failed, in the same way and at the same place"
    if death.kind == "exit.error" and (death.detail.ending is None or not death.detail.ending.raised):
        return "exception", f"it ended itself{_with(end)}; the errors of the other ranks are consequences"
    if death.kind == "exit.error":
        return "exception", "its own code failed; the errors of the other ranks are consequences"
    if end.oom_killed:
        return "oom", "the kernel's out-of-memory killer ended it"
    if end.signal == "SIGKILL":
        more = "; its memory had grown, so a memory limit is likely" if grew else ""
        return ("oom" if grew else "killed"), f"SIGKILL ended it; who sent that is not seen{more}"
    if death.after_all:
        return (
            "crash_at_exit",
            "its script was done; a thread of native code outlived the interpreter, or its teardown failed",
        )
    if end.signal in CRASHES:
        return "crash", "native code crashed in it"
    return "killed", f"{end.signal or 'a signal'} ended it; who sent that is not seen"


def _open_files(scene: Scene, rank: int) -> str:
    limit, held = (newest(scene.state, rank, f"memory/{name}") for name in ("fd_limit", "fds"))
    many = (
        f"its limit of {limit:.0f} open files (RLIMIT_NOFILE)" if limit else "its limit of open files (RLIMIT_NOFILE)"
    )
    last = f"; it held {held:.0f} when it was last looked at" if held else ""
    return f"it has come to {many}: files, sockets or pipes are opened and not closed, or it needs more of them{last}"


def _refused(death: Death) -> tuple[str, str]:
    said = "as its group was made, the address of another rank refused the connection"
    if death.detail.attempt > 0:
        return "stale", f"{said}: most likely one of the attempt before the restart, which the store still holds"
    return "refused", f"{said}: its process had ended, or listens on another network interface"


def _held_a_store(scene: Scene, death: Death) -> bool:
    found = (scene.graph.for_whom.get((rank, death.rank)) for rank in scene.graph.waiting_for((death.rank,)))
    return any(wait is not None and wait.kind == "store" for wait in found)


def _how_it_left(death: Death) -> tuple[str, str]:
    """The key and the words; a script that calls exit as its last line has come to its end like any other."""
    ending = death.detail.ending
    if ending is not None and ending.what == "exit" and ending.type:
        return (
            "handled",
            f"it gave up on an error that it caught ({ending.type}), with an exit code that says all is well",
        )
    if ending is not None and ending.what == "exit" and ending.frames and ending.frames[0].function != "<module>":
        return "left", "it called exit itself, alone: by its own condition to stop"
    why = "its own condition to stop, an error that it caught, or fewer batches than the others have"
    return "left", f"it left the training loop alone: {why}"


def _with(end: Exit) -> str:
    """The code with which it said that all is not well, where that was seen."""
    return f" with exit code {end.code}" if end.code is not None else ""


def _lost_worker(death: Death) -> bool:
    """Whether its loader found a worker dead, and raised for that alone."""
    message = death.detail.ending.message if death.detail.ending is not None else ""
    return message.startswith(LOST_WORKER)


def _by(death: Death) -> str:
    ends = [child.exit for child in death.detail.children if child.role == "worker" and child.exit not in ("", "0")]
    return f" ({ends[0]})" if ends else " by a signal, or crashed"


def _growth(death: Death) -> Evidence | None:
    """Growth that went on until the end; that of starting up, before the first group was made, is every rank's."""
    if death.kind != "exit.killed":
        return None
    begun_s = min((g.created_s for g in death.detail.groups), default=0.0)
    history = [(at_s, size) for at_s, size in death.detail.rss_history if at_s >= begun_s]
    before = [size for at_s, size in history if at_s <= death.exit.at_s - LATELY_S]
    if len(history) < 2 or not before:
        return None
    lowest, last = min(size for _, size in history), history[-1][1]
    if last < GROWTH_RATIO * lowest or last - lowest < 100 * MIB or last < STILL_GROWS_RATIO * before[-1]:
        return None
    took_s = history[-1][0] - next(t for t, b in history if b == lowest)
    text = f"its memory grew from {lowest // MIB} to {last // MIB} MiB in {words.seconds_text(took_s)} before"
    return Evidence(text, "kernel", death.rank)
