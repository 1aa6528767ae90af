"""The root of the waits waits for the store: for a key, or for the workers of a store of the script's own."""

from dataclasses import replace

from diagd.daemon.detectors import places, store_apart, store_keys, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.life import life_of
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import PROVEN_S, Scene
from diagd.daemon.detectors.waiting import all_waiting, is_looked_at, may_be_helped
from diagd.daemon.state.model import Operation

MOST_SHOWN = 4  # waits that are told as evidence
KEYS_SHOWN = 3
_APART = (
    "the ranks mean one key and spell it differently: it holds something that is another in each process, such as the"
    " hash of a text, the id of an object, a time or a path of its own"
)


def store_wait(scene: Scene, ranks: tuple[int, ...]) -> Finding | None:
    """Ranks that wait for the same thing of the store: None while that may just take its time."""
    waits = [w for r in ranks if (w := scene.graph.wait(r)) is not None]
    age_s = min(scene.age_s(w) for w in waits)
    everyone = range(scene.state.world_size)
    closed = all_waiting(scene)
    looked = is_looked_at(scene, everyone)
    if age_s < (PROVEN_S if closed and looked else scene.late_s) and not scene.failed(ranks):
        return None
    helped = may_be_helped(scene, everyone)
    closed = closed and looked and not helped
    wait = waits[0]
    joins = wait.op.name == "STORE_JOIN"
    keys = () if joins else store_keys.missed(scene, (w.op for w in waits))
    missing = _not_joined(scene, wait, ranks) if joins else _owners(scene, keys, ranks)
    dependents = scene.graph.waiting_for(ranks)
    culprits = missing or ranks
    waiting = tuple(sorted({*ranks, *dependents} - set(culprits)))
    said = _join_said(scene, wait, ranks, missing) if joins else _key_said(scene, wait, ranks, keys, missing)
    text = (
        said + scene.lasting(age_s) + (f"; {words.wait_text(waiting)} for them" if dependents and not missing else "")
    )
    shown = [Evidence(f"in {words.op_text(w.op)}{scene.lasting(scene.age_s(w))}", "probe", w.rank) for w in waits]
    told = tuple(shown[:MOST_SHOWN])
    if joins:
        cause = _workers(scene, wait, missing, closed, told)
    elif not missing and (apart := store_apart.spelled_apart(scene, [w.op for w in waits])):
        cause = Cause("apart", _APART, 0.8 if closed else 0.6, Basis.INFERENCE, (*apart, *told))
    else:
        cause = _key(scene, keys[0], missing, closed, told)
    if helped and not missing:
        cause = replace(cause, text=f"{cause.text}; a thread or process beside the ranks may still do so")
    return Finding(
        kind="hang.store_wait", severity=_severity(scene, ranks, age_s, closed), ranks=culprits,
        waiting_ranks=waiting, op_name=wait.op.name, names=keys or (wait.op.detail,), causes=(cause,),
        summary=words.shortened(text + "."), step=scene.step(ranks), sure=closed,
        locations=_places(scene, missing, waits),
        since_s=min(w.since_s for w in waits), key=f"key:{keys[0] if keys else wait.op.detail}",
    )  # fmt: skip


def _places(scene: Scene, missing: tuple[int, ...], waits: list[Wait]) -> tuple[Location, ...]:
    """Where the missing ranks are instead, then where the others wait."""
    found: list[Location] = []
    for rank in missing:
        other, detail = scene.graph.wait(rank), scene.state.detail(rank)
        found += places.at_wait(detail, other) if other is not None else places.outside(detail)
    return (*found, *(place for w in waits for place in places.at_wait(scene.state.detail(w.rank), w)))


def _severity(scene: Scene, ranks: tuple[int, ...], age_s: float, closed: bool) -> Severity:
    over = age_s >= scene.state.hang_after_s and _all_quiet(scene)
    return Severity.CRITICAL if closed or scene.failed(ranks) or over else Severity.WARNING


def _all_quiet(scene: Scene) -> bool:
    """No rank outside communication has moved for as long as the user is patient."""
    free = [r for r in scene.state.ranks() if not scene.graph.waits.get(r) and not scene.state.status(r).gone]
    return all(life_of(scene.state, r).idle_s >= scene.state.hang_after_s for r in free)


# --- a key


def _owners(scene: Scene, keys: tuple[str, ...], ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Who should have set these keys; empty where that is not known of each."""
    owners = [store_keys.owner(scene, key, ranks) for key in keys]
    return tuple(sorted({one for one in owners if one is not None})) if None not in owners else ()


def _key_said(
    scene: Scene, wait: Wait, ranks: tuple[int, ...], keys: tuple[str, ...], owners: tuple[int, ...]
) -> str:  # fmt: skip
    shown = ", ".join(keys[:KEYS_SHOWN]) + (f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else "")
    siblings = _setters(scene, keys[0])
    who = f"; {words.ranks_text(siblings)} set keys like it before" if siblings and not owners else ""
    whose = f"{words.ranks_text(owners)} {words.verb(owners, 'has', 'have')} not set" if owners else "no rank has set"
    site = words.place_text(wait.op.site)
    text = f"{words.wait_text(ranks)} for store key {shown!r}, which {whose}{who}"
    return text + (f"; in {site}" if site else "")


def _key(
    scene: Scene, key: str, owners: tuple[int, ...], closed: bool, shown: tuple[Evidence, ...]
) -> Cause:  # fmt: skip
    siblings = _setters(scene, key)
    text = "the key was not set, and which rank is to set it is not known"
    text += f": most likely {words.ranks_text(siblings)}" if siblings else ""
    if owners:
        text = f"the key was not set: in keys like it, {words.ranks_text(owners)} has always had that number"
    before = tuple(Evidence(f"set {op.detail!r} before", "probe", r) for r, op in _sibling_sets(scene, key)[:2])
    return Cause("key", text, 0.9 if closed else 0.6, Basis.OBSERVATION, shown + before)


def _sibling_sets(scene: Scene, key: str) -> list[tuple[int, Operation]]:
    """The last set of a key that differs only in its number, for each rank that did one."""
    stem = store_keys.parted(key)[0]
    sets = store_keys.sets(scene)
    found = {r: op for r, op in sets if op.detail != key and store_keys.parted(op.detail)[0] == stem}
    return sorted(found.items())


def _setters(scene: Scene, key: str) -> tuple[int, ...]:
    return tuple(r for r, _ in _sibling_sets(scene, key))


# --- workers


def _not_joined(scene: Scene, wait: Wait, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Who should have joined too; empty where the store is for fewer than all, so that it cannot be known.

    Only the store's server waits in its making; the others have come and gone on (torch's TCPStore::waitForWorkers).
    """
    state = scene.state
    if wait.op.numel != state.world_size:
        return ()
    others = (r for r in range(state.world_size) if r not in ranks and r in state.details)
    return tuple(r for r in others if _port(wait.op.detail) not in _joined(scene, r))


def _joined(scene: Scene, rank: int) -> set[str]:
    """The ports of the stores that a rank has come to: ranks may call the host by different names."""
    fact = scene.state.signals.fact(rank, "store/joined")
    made = [op.detail for op in scene.state.detail(rank).history if op.name == "STORE_JOIN"]
    return {_port(place) for place in (*made, *(fact[1].split(",") if fact is not None else ()))}


def _port(place: str) -> str:
    return place.rpartition(":")[2]


def _join_said(scene: Scene, wait: Wait, ranks: tuple[int, ...], missing: tuple[int, ...]) -> str:
    site = words.place_text(wait.op.site)
    text = f"{words.wait_text(ranks)} in {words.op_text(wait.op)}" + (f" in {site}" if site else "")
    if not missing:
        return text + ", which have not all come"
    text += f"; {words.ranks_text(missing)} {words.verb(missing, 'has', 'have')} not joined"
    other = scene.graph.wait(missing[0])
    return text + (f": in {words.op_text(other.op)}" if other is not None else "")


def _workers(scene: Scene, wait: Wait, missing: tuple[int, ...], closed: bool, shown: tuple[Evidence, ...]) -> Cause:
    text = "the store waits for all its workers, and some never make theirs"
    if not missing:
        text += f"; which of the job's {scene.state.world_size} ranks should have is not known"
    elsewhere = tuple(
        Evidence(f"in {words.op_text(other.op)} instead", other.op.source, r)
        for r in missing[:MOST_SHOWN]
        if (other := scene.graph.wait(r)) is not None
    )
    return Cause("workers", text, 0.9 if closed else 0.6, Basis.OBSERVATION, shown + elsewhere)
