"""Ranks that wait for each other in a circle: over groups, or with send and recv."""

from collections import defaultdict

from diagd.daemon.detectors import history, places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.graph import cycle_in
from diagd.daemon.detectors.history import RECV, SEND
from diagd.daemon.detectors.ledger import UNNAMED, minority
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import PROVEN_S, Scene

HISTORY_S = 8.0  # by then it has come, or will not come
MANY = 16  # operations


def circle(scene: Scene, component: tuple[int, ...]) -> Finding | None:
    """The finding for a component of the graph that waits only for itself; None while it is too young to be proven."""
    waits = {r: scene.graph.waits[r][0] for r in component if scene.graph.waits.get(r)}
    if not waits or (not scene.failed(component) and min(scene.age_s(w) for w in waits.values()) < PROVEN_S):
        return None
    if any(w.op.name == UNNAMED for w in waits.values()):
        return None  # known by a counter that can be late: no proof of anything
    kinds = {w.kind for w in waits.values()}
    if "creation" in kinds or "store" in kinds:
        return _creation(scene, component, waits)
    kind = _kind(kinds, {w.op.group for w in waits.values()})
    if kind == "hang.p2p_unmatched" and _history_is_coming(scene, waits):
        return None
    # The order that all have kept until now outweighs a vote: a server that waits for its workers stands alone too.
    strayed = history.first_time(scene, waits)
    left = _left_alone(waits) if kind == "hang.p2p_unmatched" else ()
    turned = _turned_to_who_is_done(scene, waits, left)
    strange = _turned_to_a_stranger(scene, waits, left)
    left = () if turned or strange else left
    partner = strange or (() if strayed or left or turned else history.new_partner(scene, waits))
    stopped = () if strayed or left or turned or partner else history.stopped_sending(scene, waits)
    known = strayed or strange or turned or left or partner or stopped
    tags = _tags_apart(waits)
    culprits, tie = (known, False) if known and not tags else _out_of_order(waits)
    dependents = scene.graph.waiting_for(component)
    first = waits[culprits[0]]
    locations = tuple(place for r in culprits for place in places.at_wait(scene.state.detail(r), waits.get(r)))
    return Finding(
        kind=kind,
        severity=Severity.CRITICAL,
        ranks=culprits,
        waiting_ranks=tuple(sorted({*component, *dependents} - set(culprits))),
        group=first.op.group or None,
        op_name=first.op.name,
        op_seq=first.op.seq,
        names=tuple(sorted({w.op.group for w in waits.values() if w.op.group})),
        summary=tags or _summary(scene, component, waits, culprits, tie, _how(known, turned, partner, stopped)),
        locations=locations,
        causes=(_cause(scene, component, waits, tie, kind, tags),),
        step=scene.step(component),
        sure=True,
        since_s=max(w.since_s for w in waits.values()),
        key="circle:" + ",".join(map(str, component)),
    )


def _history_is_coming(scene: Scene, waits: dict[int, Wait]) -> bool:
    """Whether what these ranks did before, which tells who is out of order, has been asked for and is not here yet."""
    state = scene.state
    if state.from_dumps or state.ended_s is not None or scene.failed(tuple(waits)):
        return False
    if min(scene.age_s(wait) for wait in waits.values()) >= HISTORY_S:
        return False
    counts = state.columns.operations
    return any(not state.detail(r).history and int(counts[r]) > MANY for r in waits if r < len(counts))


def _kind(kinds: set[str], groups: set[str]) -> str:
    """Within one group, ranks in operations that wait for each other disagree about that group's order.

    A send or recv whose partner is in a collective of the same group has none, whoever waits for whom beyond that.
    """
    if kinds == {"p2p"} or ("p2p" in kinds and len(groups) == 1):
        return "hang.p2p_unmatched"
    return "hang.collective_mismatch" if kinds == {"collective"} and len(groups) == 1 else "hang.group_cycle"


def _left_alone(waits: dict[int, Wait]) -> tuple[int, ...]:
    """The ranks that should be in a send or recv with another one on the circle, and are in a collective."""
    wanted = {wait.op.peer for wait in waits.values() if wait.kind == "p2p"}
    return tuple(sorted(r for r, wait in waits.items() if r in wanted and wait.kind == "collective"))


def _tags_apart(waits: dict[int, Wait]) -> str:
    """In words, where one rank sends to another that receives from it, and only their tags differ."""
    ops = {rank: wait.op for rank, wait in waits.items() if wait.kind == "p2p"}
    if len(waits) != 2 or {op.name for op in ops.values()} != {"SEND", "RECV"}:
        return ""
    (sender, sent), (receiver, awaited) = sorted(ops.items(), key=lambda item: item[1].name, reverse=True)
    if sent.tag == awaited.tag or (sent.peer, awaited.peer) != (receiver, sender):
        return ""
    at = " and ".join(f"rank {r} at {words.place_text(op.site)}" for r, op in ops.items() if op.site is not None)
    text = f"rank {sender} sends to rank {receiver} with tag {sent.tag}, and rank {receiver} receives from it with tag"
    return words.shortened(f"{text} {awaited.tag}: they never meet" + (f" ({at})." if at else "."))


def _out_of_order(waits: dict[int, Wait]) -> tuple[tuple[int, ...], bool]:
    """The ranks that wait elsewhere than most; on a tie all, and True."""
    by_place: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank, wait in sorted(waits.items()):
        op = wait.op
        by_place[(op.name, rank, op.peer) if wait.kind == "p2p" else (op.name, op.group, op.seq)].append(rank)
    ranked = sorted(by_place.values(), key=lambda ranks: (-len(ranks), ranks))
    culprits, tie = minority(ranked)
    return (culprits, tie) if culprits else (tuple(sorted(waits)), True)


def _turned_to_who_is_done(scene: Scene, waits: dict[int, Wait], left: tuple[int, ...]) -> tuple[int, ...]:
    """Who waits in a send or recv for a rank that has done all of its own in this step, with others."""
    wanted = {r: RECV if w.op.name == SEND else SEND for r, w in waits.items() if w.kind == "p2p" and w.op.peer in left}
    if not wanted or not all(history.has_done_its_share(scene, waits[r].op.peer, name) for r, name in wanted.items()):
        return ()
    return tuple(sorted(wanted))


def _turned_to_a_stranger(scene: Scene, waits: dict[int, Wait], left: tuple[int, ...]) -> tuple[int, ...]:
    """Who waits in a send or recv for a rank that went to a collective, and with which it never had one before."""
    wanted = {rank for rank, wait in waits.items() if wait.kind == "p2p" and wait.op.peer in left}
    strange = set(history.new_partner(scene, waits))
    return tuple(sorted(wanted)) if wanted and wanted <= strange else ()


def _how(known: tuple[int, ...], turned: tuple[int, ...], partner: tuple[int, ...], stopped: tuple[int, ...]) -> str:
    """In words, what those at fault have done, where more is known than that they stand elsewhere."""
    if turned and known == turned:
        return "turned to a partner that has done its sends and receives of this step with others"
    if partner and known == partner:
        return "turned to a partner that it never sent to or received from before"
    return "gone on without a send that went before each receive until now" if stopped and known == stopped else ""


def _doing(wait: Wait) -> str:
    text = f"rank {wait.rank} in {words.op_text(wait.op)}"
    if wait.op.p2p and wait.op.source == "flight recorder" and wait.op.shapes:
        text += f" of {words.size_text(wait.op)}"
    place = words.place_text(wait.op.site)
    return f"{text} at {place}" if place else text


def _path(scene: Scene, component: tuple[int, ...]) -> tuple[int, ...]:
    return cycle_in(scene.graph.edges, component) or component


def _summary(
    scene: Scene, component: tuple[int, ...], waits: dict[int, Wait], culprits: tuple[int, ...], tie: bool, how: str,
) -> str:  # fmt: skip
    path = [r for r in _path(scene, component) if r in waits]
    shown = path if tie else [*culprits, *(r for r in path if r not in culprits)]
    steps = "; ".join(_doing(waits[r]) for r in shown[:4] if r in waits)
    left = set(culprits) <= set(_left_alone(waits))
    said = "not in the send or recv that others wait for" if left else "out of order"
    who = "" if tie else f"{words.ranks_text(culprits)} {words.verb(culprits, 'is', 'are')} {said}: "
    if how:
        who = f"{words.ranks_text(culprits)} {words.verb(culprits, 'has', 'have')} {how}: "
    return words.shortened(
        f"{who}ranks {' → '.join(map(str, [*path, path[0]]))} wait for each other in a circle: {steps}."
    )


_WHY = {
    "hang.p2p_unmatched": ("p2p", "sends and receives do not pair up: each waits for a partner that waits itself"),
    "hang.collective_mismatch": (
        "path",
        "the ranks took different paths in the program and met in other operations",
    ),
    "hang.group_cycle": (
        "order",
        "the ranks enter different groups, or send and recv, in different orders",
    ),
}


# Of a send or recv on a circle with collectives of the same group.
_APART = (
    "path",
    "a send or recv waits for a rank that has gone to a collective, and that waits for who is in the send or recv",
)


def _cause(
    scene: Scene, component: tuple[int, ...], waits: dict[int, Wait], tie: bool, kind: str, tags: str
) -> Cause:  # fmt: skip
    evidence = []
    path = _path(scene, component)
    for rank, after in zip(path, (*path[1:], path[0]), strict=True):
        wait = scene.graph.for_whom.get((rank, after)) or waits.get(rank)
        if wait is not None:
            evidence.append(
                Evidence(f"{_doing(wait)} waits for rank {after}", wait.op.source, rank, scene.step((rank,)))
            )
    key, text = _APART if kind == "hang.p2p_unmatched" and _left_alone(waits) else _WHY[kind]
    if tags:
        key, text = "tags", "the tags of a send and its receive differ; which of the two is right cannot be told"
    elif tie:
        text += "; each order is as frequent as the other, so which is wrong cannot be told by a vote"
    return Cause(key, text, 0.95, Basis.OBSERVATION, tuple(evidence) or (Evidence(text, "probe"),))


def _creation(scene: Scene, component: tuple[int, ...], waits: dict[int, Wait]) -> Finding:
    """A group's creation is part of the circle: it comes first, and who did not join it is at fault."""
    inside = [r for r, w in waits.items() if w.kind in ("creation", "store")]
    missing = tuple(r for r in component if any(r in scene.graph.edges[i] for i in inside) and r not in inside)
    most = max((scene.state.detail(r).group_count for r in inside), default=0)
    behind = tuple(r for r in component if scene.state.detail(r).group_count < most)
    culprits = behind or missing or tuple(sorted(inside))
    first = waits[inside[0]]
    locations = tuple(place for r in culprits for place in places.at_wait(scene.state.detail(r), waits.get(r)))
    what = words.op_text(first.op)
    text = (
        f"{words.ranks_text(inside)} {words.verb(inside, 'waits', 'wait')} in {what} for {words.ranks_text(culprits)}, "
        f"which {words.verb(culprits, 'is', 'are')} elsewhere: "
        + "; ".join(_doing(waits[r]) for r in culprits[:3] if r in waits)
    )
    evidence = tuple(
        Evidence(f"{_doing(w)}; it has taken part in creating {scene.state.detail(r).group_count} groups", "probe", r)
        for r, w in waits.items()
    )
    cause = Cause("not_joined", "a group's creation needs every rank of the job, and some left it out",
                  0.95, Basis.OBSERVATION, evidence)  # fmt: skip
    return Finding(
        kind="hang.store_wait",
        severity=Severity.CRITICAL,
        ranks=culprits,
        waiting_ranks=tuple(sorted({*component, *scene.graph.waiting_for(component)} - set(culprits))),
        group=first.op.group or None,
        op_name=first.op.name,
        names=(first.op.detail,) if first.op.detail else (),
        summary=words.shortened(text + "."),
        locations=locations,
        causes=(cause,),
        step=scene.step(component),
        sure=True,
        since_s=max(w.since_s for w in waits.values()),
        key="creation",
    )
