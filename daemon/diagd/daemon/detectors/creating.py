"""Ranks make their groups in different orders: the n-th creation of one is another group than that of the others.

`new_group` pairs by the order of its calls alone, as collectives do, so every rank must make the same groups in the
same order, also those it is no member of (torch's documentation of `new_group`).
"""

from collections import defaultdict
from collections.abc import Mapping

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail

BY_MEMBERS_ALONE = "own "  # before "ranks": no rank else takes part in making it, so its place in the order is free
MOST_SHOWN = 6


def other_order(scene: Scene, wait: Wait) -> Finding | None:
    """Who makes another group than the others do, in a creation that some rank is in."""
    number, sides = _difference(scene)
    if not sides:
        return None
    culprits, tie = minority(sides)
    everyone = tuple(sorted(r for ranks in sides for r in ranks))
    waiting = tuple(sorted({*everyone, *scene.graph.waiting_for(everyone)} - set(culprits)))
    evidence = tuple(
        Evidence(f"its creation #{number} is of ranks {_made(scene.state.detail(r))[number]}", "probe", r)
        for r in everyone[:MOST_SHOWN]
    )
    why = "new_group pairs by the order of its calls, and the ranks make their groups in different orders"
    why += "; which of them is right cannot be told by a vote" if tie else ""
    return Finding(
        kind="hang.store_wait", severity=Severity.CRITICAL, ranks=culprits, waiting_ranks=waiting,
        op_name=wait.op.name, names=(wait.op.detail,) if wait.op.detail else (),
        summary=_summary(scene, number, sides, tie),
        locations=tuple(p for r in culprits for p in places.at_wait(scene.state.detail(r), scene.graph.wait(r))),
        causes=(Cause("not_joined", why, 0.95, Basis.OBSERVATION, evidence),), step=scene.step(everyone),
        since_s=wait.since_s, sure=True, key="creation",
    )  # fmt: skip


def named_apart(scene: Scene, waits: Mapping[int, Wait]) -> tuple[tuple[int, ...], str]:
    """The ranks that have made other groups under a number than most, where some of these wait; and that in words.

    A rank's group meets those of the same number: made in another order, it is another one.
    """
    by_name: dict[str, dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, detail in sorted(scene.state.details.items()):
        for group in detail.groups:
            by_name[group.name][tuple(sorted(group.ranks))].append(rank)
    waited = {wait.op.group for wait in waits.values() if wait.kind == "collective"}
    apart = {name: sides for name, sides in by_name.items() if name.isdecimal() and len(sides) > 1}
    if not waited & apart.keys():
        return (), ""
    name = min(apart, key=int)
    sides = sorted(apart[name].items(), key=lambda side: (-len(side[1]), side[1]))
    culprits, _ = minority([ranks for _, ranks in sides])
    said = "; ".join(f"of {words.ranks_text(who)} on {words.ranks_text(ranks)}" for who, ranks in sides[:MOST_SHOWN])
    return culprits, f"the ranks have made their groups in different orders: group {name} is {said}"


def _summary(scene: Scene, number: int, sides: list[list[int]], tie: bool) -> str:
    said = [
        f"{words.ranks_text(ranks)} {words.verb(ranks, 'makes', 'make')} "
        f"the group of ranks {_made(scene.state.detail(ranks[0]))[number]}"
        for ranks in sides
    ]
    text = "; ".join(said) if tie else f"{'; '.join(said[1:])}, where {said[0]}"
    text += f", in new_group #{number}; they wait for each other."
    return words.shortened(text + (" No side is in the majority." if tie else ""))


def _difference(scene: Scene) -> tuple[int, list[list[int]]]:
    """The first creation in progress of which the ranks' groups differ, and the ranks by group, most of them first."""
    made = {r: _made(d) for r, d in scene.state.processes().items()}
    creating = {r for r, waits in scene.graph.waits.items() if any(w.op.name == "NEW_GROUP" for w in waits)}
    for number in sorted({scene.state.detail(r).group_count for r in creating}):
        sides: dict[str, list[int]] = defaultdict(list)
        for rank in sorted(made):
            if number in made[rank]:
                sides[made[rank][number]].append(rank)
        if len(sides) > 1:
            return number, sorted(sides.values(), key=lambda ranks: (-len(ranks), ranks))
    return 0, []


def _made(detail: Detail) -> dict[int, str]:
    """The members of the groups that a rank has made or is making, by the number of their creation, from 1."""
    ops = {op.entered_s: op for op in (*detail.history, *detail.operations) if op.name == "NEW_GROUP"}
    found = {}
    for back, at_s in enumerate(sorted(ops, reverse=True)):
        before, _, members = ops[at_s].detail.rpartition("ranks ")
        if members and not before.endswith(BY_MEMBERS_ALONE):
            found[detail.group_count - back] = members
    return found
