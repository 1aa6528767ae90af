"""The root of the waits waits itself, and for no rank: for others to join, or in an operation that all have entered."""

from collections.abc import Iterable

from diagd.daemon.detectors import companions, places, words
from diagd.daemon.detectors.creating import other_order
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.launched import Claimed, claimed_twice, never_started
from diagd.daemon.detectors.life import life_of
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import FIRST_STEP_LATE_S, PROVEN_S, Scene

_RESTS = frozenset({"nanosleep", "clock_nanosleep", "flock", "fcntl"})


def all_waiting(scene: Scene) -> bool:
    """Whether no rank is left that could end anyone's wait: each has ended, or waits in vain."""
    return all(scene.state.status(r).gone or _in_vain(scene, r) for r in range(scene.state.world_size))


def may_be_helped(scene: Scene, ranks: Iterable[int]) -> bool:
    """Whether a thread or a process beside one of these ranks' main threads may end their wait."""
    alive = [rank for rank in ranks if rank in scene.state.details and not scene.state.status(rank).gone]
    return any(companions.works_beside(scene.state.detail(rank)) for rank in alive)


def is_looked_at(scene: Scene, ranks: Iterable[int]) -> bool:
    """Whether it is known by now what runs beside these ranks' main threads, as far as it can be."""
    details = [scene.state.detail(rank) for rank in ranks if not scene.state.status(rank).gone]
    return scene.state.from_dumps or all(detail.stack is not None for detail in details)


def _in_vain(scene: Scene, rank: int) -> bool:
    """Whether its wait needs another rank or a key; an operation that all have entered may just be long."""
    waits = scene.graph.waits.get(rank, ())
    return any(w.failed or w.kind == "store" for w in waits) or bool(waits and scene.graph.edges[rank])


def creation(scene: Scene, rank: int) -> Finding | None:
    """A group's creation or the first rendezvous waits for ranks that have not come."""
    wait = scene.graph.wait(rank)
    state = scene.state
    closed = all_waiting(scene) and bool(scene.graph.edges[rank])
    if wait is None or (scene.age_s(wait) < (PROVEN_S if closed else max(scene.late_s, 5.0)) and not wait.failed):
        return None
    if wait.failed and _lasted_s(scene, wait) < scene.late_s:
        return None  # what failed at once did not wait: the ranks' ends say why
    joined = tuple(
        r for r in range(state.world_size) if any(w.op.name == wait.op.name for w in scene.graph.waits.get(r, ()))
    )
    fell = {r for r in scene.graph.edges[rank] if _fell_out(scene, r, wait)}
    missing = tuple(sorted(scene.graph.edges[rank] - fell)) or joined
    if fell and missing == joined:
        return None  # all have come, and one has failed in it: what it says of that tells more
    if any(state.why_not_known(r) for r in range(state.world_size)):
        return None  # who has no dump may have joined
    if wait.op.name == "NEW_GROUP" and (found := other_order(scene, wait)) is not None:
        return found
    if wait.op.name == "INIT" and (claimed := claimed_twice(scene, joined)) is not None:
        return _same_number(scene, wait, joined, claimed)
    joined = tuple(r for r in joined if r not in missing) or joined
    known = {r: d for r in missing if (d := state.candidates.get(r) or state.details.get(r))}
    unstarted = never_started(scene, joined, missing)
    stuck = missing == joined or unstarted is not None or all(_quiet(scene, r) for r in missing)
    over = scene.age_s(wait) >= state.hang_after_s
    severity = Severity.CRITICAL if (over and stuck) or wait.failed or closed or unstarted else Severity.WARNING
    if severity == Severity.WARNING and not stuck and _starting(scene, wait, missing):
        severity = Severity.INFO
    locations = tuple(p for d in known.values() for p in places.outside(d))
    place = words.place_text(places.first(locations))
    what = words.op_text(wait.op)
    text = f"{words.wait_text(joined)} in {what}{scene.lasting(scene.age_s(wait))}; "
    if missing == joined:
        text += _through(scene, joined) + "and it does not end: look at the rendezvous and the network"
    else:
        text += f"{words.ranks_text(missing)} {words.verb(missing, 'has', 'have')} not joined" + (
            f": in {place}" if place else "; nothing is heard of it" if not known else ""
        )
    if unstarted is not None:
        text = f"{words.wait_text(joined)} in {what}; {unstarted.text}"
    evidence = [Evidence(f"in {what}{scene.lasting(scene.age_s(wait))}", "probe", r) for r in joined[:3]]
    evidence += [
        Evidence(f"has not entered {what}" + (f"; in {place}" if place else ""), "stack", r) for r in list(known)[:3]
    ]
    cause = Cause("not_joined", "every rank of the job must join, and some have not", 0.9 if stuck else 0.6,
                  Basis.OBSERVATION if known else Basis.INFERENCE, tuple(evidence))  # fmt: skip
    if missing == joined:
        cause = _unconnected(state.attempt, tuple(evidence))
    cause = unstarted or cause
    return Finding(
        kind="hang.store_wait", severity=severity, ranks=missing,
        waiting_ranks=tuple(sorted(set(joined) - set(missing))),
        op_name=wait.op.name, names=(wait.op.detail,) if wait.op.detail else (), summary=words.shortened(text + "."),
        locations=locations or places.at_wait(state.detail(rank), wait), causes=(cause,), step=scene.step(joined),
        since_s=wait.since_s, sure=closed, key="creation",
    )  # fmt: skip


def _same_number(scene: Scene, wait: Wait, joined: tuple[int, ...], claimed: Claimed) -> Finding:
    culprits = claimed.culprits
    return Finding(
        kind="hang.store_wait", severity=Severity.CRITICAL, ranks=culprits,
        waiting_ranks=tuple(sorted(set(joined) - set(culprits))), op_name=wait.op.name,
        names=(wait.op.detail,) if wait.op.detail else (),
        summary=words.shortened(f"{words.wait_text(joined)} in init_process_group; {claimed.cause.text}."),
        locations=tuple(p for r in culprits for p in places.at_wait(scene.state.detail(r), scene.graph.wait(r))),
        causes=(claimed.cause,), step=scene.step(joined), since_s=wait.since_s, sure=True, key="creation",
    )  # fmt: skip


def _through(scene: Scene, joined: tuple[int, ...]) -> str:
    """That all have come, and who has come through already."""
    passed = tuple(r for r in range(scene.state.world_size) if r not in joined)
    return (
        f"{words.ranks_text(passed)} {words.verb(passed, 'has', 'have')} come through it, "
        if passed
        else "all have entered it "
    )


def _unconnected(attempt: int, evidence: tuple[Evidence, ...]) -> Cause:
    """All have come, and the connections between them are not made."""
    said = "all have come to it, and the connections between them are not made"
    if attempt > 0:
        more = ": after a restart, most likely as the store still holds addresses of the attempt before"
        return Cause("stale", said + more, 0.6, Basis.INFERENCE, evidence)
    return Cause("unconnected", said, 0.7, Basis.OBSERVATION, evidence)


def _fell_out(scene: Scene, rank: int, wait: Wait) -> bool:
    """Whether it has entered the same and come out of it with an error."""
    detail = scene.state.detail(rank)
    return any(op.name == wait.op.name and op.failed for op in (*detail.history, *detail.operations))


def _starting(scene: Scene, wait: Wait, missing: tuple[int, ...]) -> bool:
    """Whether they may still be importing: some launchers start the others only when the first is ready to join."""
    unheard = all(r not in scene.state.details and r not in scene.state.candidates for r in missing)
    patience_s = max(scene.state.hang_after_s, FIRST_STEP_LATE_S if unheard else 0.0)
    unjoined = all(r not in scene.state.details for r in missing)
    return wait.op.name == "INIT" and unjoined and scene.age_s(wait) < patience_s


def _quiet(scene: Scene, rank: int) -> bool:
    """No sign of life from a rank that has not joined; one that never reported is unknown, not quiet."""
    detail = scene.state.candidates.get(rank)
    if detail is not None:
        # A sleep or a lock of the kernel's is no work, of its threads or of others; of other waits the numbers tell.
        asleep = detail.stack is not None and detail.stack.syscall in _RESTS and not detail.children
        still_s = scene.state.now_s - detail.still_since_s if detail.still_since_s else 0.0
        digests = [digest for _, digest in detail.looks[-5:]]
        return (asleep or still_s >= scene.state.hang_after_s) and len(digests) >= 3 and len(set(digests)) == 1
    return rank in scene.state.details and life_of(scene.state, rank).idle_s >= scene.state.hang_after_s


def all_arrived(scene: Scene, wait: Wait) -> Finding | None:
    """Everyone has entered the same operation and it does not finish."""
    members = tuple(sorted(wait.members)) or (wait.rank,)
    if wait.kind == "p2p":
        members = tuple(sorted({wait.rank, wait.op.peer} - {-1}))
    unnamed = scene.state.has_unnamed(wait.op.group)
    if any(scene.state.why_not_known(m, wait.op.group) for m in members) or (unnamed and len(members) < 2):
        return None
    age_s = scene.age_s(wait)
    lives = [life_of(scene.state, r) for r in members if r in scene.state.details]
    idle_s = min((life.idle_s if life.known else age_s for life in lives), default=0.0)
    if wait.failed and _lasted_s(scene, wait) < scene.late_s:
        return None  # what failed at once did not hang: the ranks' ends say why
    if age_s < scene.late_s or (not wait.failed and idle_s < scene.late_s):
        return None
    patient = scene.state.hang_after_s
    severity = Severity.CRITICAL if min(age_s, idle_s) >= patient or wait.failed else Severity.WARNING
    severity = Severity.WARNING if unnamed else severity
    what = words.op_text(wait.op)
    behind = _unfinished(scene, wait, members)
    evidence = tuple(
        Evidence(f"entered {what}" + (f" at {words.place_text(op.site)}" if op.site else ""), op.source, r)
        for r in behind[:4]
        if (op := scene.ledger.at(wait.op.group, wait.op.seq, r)) is not None
    ) or (Evidence(f"in {what}{scene.lasting(age_s)}", wait.op.source, wait.rank),)
    cause = Cause("transport", "the ranks agree and the operation does not end: the network, the device or the library",
                  0.7, Basis.INFERENCE, evidence)  # fmt: skip
    more = " (whether it has more members is not known)" if unnamed else ""
    text = f"all of {words.ranks_text(members)}{more} have entered {what} and it has not finished"
    if behind != members:
        rest = words.ranks_text(set(members) - set(behind))
        text += f" on {words.ranks_text(behind)}, as it has on {rest}"
    text += scene.lasting(age_s)
    return Finding(
        kind="hang.all_arrived", severity=severity, ranks=behind, waiting_ranks=scene.graph.waiting_for(members),
        group=wait.op.group or None, op_name=wait.op.name, op_seq=wait.op.seq, summary=words.shortened(text + "."),
        locations=tuple(p for r in behind for p in places.at_wait(scene.state.detail(r), scene.graph.wait(r))[:2]),
        causes=(cause,), step=scene.step(members), since_s=wait.since_s,
        key=f"arrived:{wait.op.group}#{wait.op.seq or members}",
    )  # fmt: skip


def _lasted_s(scene: Scene, wait: Wait) -> float:
    """How long it lasted until it failed, or until its rank ended."""
    detail = scene.state.detail(wait.rank)
    ends = (wait.op.returned_s, detail.ending and detail.ending.at_s, detail.exit and detail.exit.at_s)
    return min((end for end in ends if end), default=scene.state.now_s) - wait.since_s


def _unfinished(scene: Scene, wait: Wait, members: tuple[int, ...]) -> tuple[int, ...]:
    """The members on which the operation has not finished, where the flight recorder says that it has on others."""
    entries = scene.ledger.recorder.get((wait.op.group, wait.op.seq), {}) if wait.op.seq > 0 else {}
    behind = tuple(m for m in members if m not in entries or entries[m].retired is False)
    return behind if behind and all(m in entries for m in members) else members
