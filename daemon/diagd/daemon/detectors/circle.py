"""Ranks that wait for each other in a circle: over groups, or with send and recv."""

from collections import defaultdict

from diagd.daemon.detectors import coming, places, words
from diagd.daemon.detectors.creating import named_apart
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.graph import cycle_in
from diagd.daemon.detectors.ledger import UNNAMED, minority
from diagd.daemon.detectors.odd_on_circle import Odd, left_alone, odd_on, out_of_order
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import PROVEN_S, Scene
from diagd.daemon.detectors.waiting import may_be_helped


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
    if coming.is_coming(scene, waits):
        return None
    young = min(scene.age_s(w) for w in waits.values()) < scene.state.hang_after_s
    helped = young and kind != "hang.collective_mismatch" and may_be_helped(scene, component)
    makers, made = named_apart(scene, waits)
    odd = Odd(makers, "") if makers else odd_on(scene, waits, unmatched=kind == "hang.p2p_unmatched")
    tags = _tags_apart(waits)
    culprits, tie = (odd.ranks, False) if odd.ranks and not tags else _standing_elsewhere(waits)
    dependents = scene.graph.waiting_for(component)
    first = waits[next((rank for rank in culprits if rank in waits), component[0])]
    locations = tuple(place for r in culprits for place in places.at_wait(scene.state.detail(r), waits.get(r)))
    return Finding(
        kind=kind,
        severity=Severity.WARNING if helped and not scene.failed(component) else Severity.CRITICAL,
        ranks=culprits,
        waiting_ranks=tuple(sorted({*component, *dependents} - set(culprits))),
        group=first.op.group or None,
        op_name=first.op.name,
        op_seq=first.op.seq,
        names=tuple(sorted({w.op.group for w in waits.values() if w.op.group})),
        summary=tags or _summary(scene, component, waits, culprits, tie, odd.said, made),
        locations=locations,
        causes=(_cause(scene, component, waits, tie, kind, tags, made, odd.key),),
        step=scene.step(component),
        sure=True,
        since_s=max(w.since_s for w in waits.values()),
        key="circle:" + ",".join(map(str, component)),
    )


def _kind(kinds: set[str], groups: set[str]) -> str:
    """Within one group, ranks in operations that wait for each other disagree about that group's order.

    A send or recv whose partner is in a collective of the same group has none, whoever waits for whom beyond that.
    """
    if kinds == {"p2p"} or ("p2p" in kinds and len(groups) == 1):
        return "hang.p2p_unmatched"
    return "hang.collective_mismatch" if kinds == {"collective"} and len(groups) == 1 else "hang.group_cycle"


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


def _standing_elsewhere(waits: dict[int, Wait]) -> tuple[tuple[int, ...], bool]:
    """The ranks that wait elsewhere than most; on a tie all, and True."""
    by_place: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank, wait in sorted(waits.items()):
        op = wait.op
        by_place[(op.name, rank, op.peer) if wait.kind == "p2p" else (op.name, op.group, op.seq)].append(rank)
    ranked = sorted(_with_siblings(list(by_place.values()), waits), key=lambda ranks: (-len(ranks), ranks))
    culprits, tie = minority(ranked)
    return (culprits, tie) if culprits else (tuple(sorted(waits)), True)


def _with_siblings(classes: list[list[int]], waits: dict[int, Wait]) -> list[list[int]]:
    """The same; ranks that stand at one line in groups that are lines of one mesh, as its rows are, stand alike."""
    found: list[list[int]] = []
    for ranks in classes:
        like = next((other for other in found if _are_siblings(waits[other[0]], waits[ranks[0]])), None)
        if like is None:
            found.append(list(ranks))
        else:
            like += ranks
    return [sorted(ranks) for ranks in found]


def _are_siblings(one: Wait, other: Wait) -> bool:
    sites = one.op.site, other.op.site
    if {one.kind, other.kind} != {"collective"} or sites[0] is None or sites[1] is None:
        return False
    alike = (one.op.name, sites[0].file, sites[0].line) == (other.op.name, sites[1].file, sites[1].line)
    mine, theirs = set(one.members), set(other.members)
    return alike and len(mine) == len(theirs) and mine.isdisjoint(theirs)


def _doing(wait: Wait) -> str:
    text = f"rank {wait.rank} in {words.op_text(wait.op)}"
    if wait.op.p2p and wait.op.source == "flight recorder" and wait.op.shapes:
        text += f" of {words.size_text(wait.op)}"
    place = words.place_text(wait.op.site)
    return f"{text} at {place}" if place else text


def _path(scene: Scene, component: tuple[int, ...]) -> tuple[int, ...]:
    return cycle_in(scene.graph.edges, component) or component


def _summary(
    scene: Scene, component: tuple[int, ...], waits: dict[int, Wait], culprits: tuple[int, ...], tie: bool, said: str,
    made: str,
) -> str:  # fmt: skip
    path = [r for r in _path(scene, component) if r in waits]
    shown = path if tie else [*culprits, *(r for r in path if r not in culprits)]
    steps = "; ".join(_doing(waits[r]) for r in shown[:4] if r in waits)
    who = "" if tie else f"{words.ranks_text(culprits)} {said or out_of_order(culprits, waits)}: "
    if made:
        return words.shortened(f"{made}; so {steps} wait for each other in vain.")
    more = f"; {said}" if tie and said else ""
    return words.shortened(
        f"{who}ranks {' → '.join(map(str, [*path, path[0]]))} wait for each other in a circle: {steps}{more}."
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
    scene: Scene, component: tuple[int, ...], waits: dict[int, Wait], tie: bool, kind: str, tags: str, made: str,
    own_key: str,
) -> Cause:  # fmt: skip
    evidence = []
    path = _path(scene, component)
    for rank, after in zip(path, (*path[1:], path[0]), strict=True):
        wait = scene.graph.for_whom.get((rank, after)) or waits.get(rank)
        if wait is not None:
            evidence.append(
                Evidence(f"{_doing(wait)} waits for rank {after}", wait.op.source, rank, scene.step((rank,)))
            )
    key, text = _APART if kind == "hang.p2p_unmatched" and left_alone(waits) else _WHY[kind]
    if made:
        key, text = "made", "every rank must make all groups, in one order, also those that it is no member of"
    elif tags:
        key, text = "tags", "the tags of a send and its receive differ; which of the two is right cannot be told"
    elif own_key and not tie:
        key = own_key
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
