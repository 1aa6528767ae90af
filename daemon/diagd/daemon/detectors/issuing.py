"""Communication broke down in an operation that some ranks' own code called, and others' did not.

What C++ issues (DDP's reducer without a communication hook) dies with its process unless the flight recorder was read
before; but the probe sees all that Python calls, and a counter says how far each rank had come. Where some ranks called
the operation at a place of the group's order, and others came to that place without a call, they met in two different
operations, however alike the lines in which they stood.
"""

from collections.abc import Iterator

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import classes, minority, signature
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Operation

Called = dict[int, Operation]


def issued_otherwise(scene: Scene) -> Finding | None:
    """The ranks in the minority at the last place of a group's order that some rank has called and not left."""
    for group, seq in sorted(set(_open(scene)), reverse=True):
        called = {r: op for r, op in scene.ledger.probe[group, seq].items() if op.returned_s is None or op.failed}
        uncalled = [
            r for r in _members(scene, group) if r not in called and _came_uncalled(scene, group, seq, r, called)
        ]
        sides = classes({r: signature(op) for r, op in called.items()}) + ([uncalled] if uncalled else [])
        if len(sides) > 1:
            return _finding(scene, group, seq, called, sorted(sides, key=lambda ranks: (-len(ranks), ranks)))
    return None


def _open(scene: Scene) -> Iterator[tuple[str, int]]:
    """The last called operation of each rank in each group, where the rank never came out of it in good order."""
    for detail in scene.state.processes().values():
        last: dict[str, Operation] = {}
        for op in (*detail.history, *detail.operations):
            if op.seq > 0 and not op.p2p and op.seq >= (last[op.group].seq if op.group in last else 0):
                last[op.group] = op
        yield from ((op.group, op.seq) for op in last.values() if op.returned_s is None or op.failed)


def _members(scene: Scene, group: str) -> tuple[int, ...]:
    found = (d.group(group) for d in scene.state.processes().values())
    return next((g.ranks for g in found if g is not None), ())


def _came_uncalled(scene: Scene, group: str, seq: int, rank: int, called: Called) -> bool:
    """Whether the rank has issued that operation, and its calls, known as far back as that, do not hold it."""
    detail = scene.state.detail(rank)
    if detail.notes or not detail.history or (group, seq) in {(o.group, o.seq) for o in detail.history}:
        return False
    reaches_back = detail.history[0].entered_s <= min(op.entered_s for op in called.values())
    return reaches_back and (scene.ledger.entered(group, rank) >= seq or _fell_out(scene, group, rank))


def _fell_out(scene: Scene, group: str, rank: int) -> bool:
    """Whether an operation of C++'s own raised: it stood in one, though its counter was last read before it began."""
    wait, ending = scene.graph.wait(rank), scene.state.detail(rank).ending
    raised = ending is not None and ending.raised  # also where the launcher ended it on its way out
    return raised and wait is not None and wait.op.group == group and wait.op.source != "probe"


def _finding(scene: Scene, group: str, seq: int, called: Called, sides: list[list[int]]) -> Finding:
    culprits, tie = minority(sides)
    everyone = tuple(sorted(r for ranks in sides for r in ranks))
    said = "; ".join(_said(ranks, called) for ranks in sides)
    text = f"communication broke down with the ranks in different operations at #{seq} of group {group}: {said}."
    text += " No side is in the majority." if tie else ""
    evidence = tuple(
        Evidence(f"{_entered(called.get(r))} at #{seq} of group {group}", "probe", r, scene.step((r,)))
        for r in everyone[:6]
    )
    why = "the ranks issued different operations at the same place: some by a call, as of a communication hook, or with"
    why += " other arguments" + ("; which of them is right cannot be told by a vote" if tie else "")
    return Finding(
        kind="hang.collective_mismatch", severity=Severity.CRITICAL, ranks=culprits,
        waiting_ranks=tuple(r for r in everyone if r not in culprits), group=group, op_seq=seq,
        op_name=next(iter(called.values())).name, summary=words.shortened(text),
        locations=tuple(p for r in culprits for p in places.at_end(scene.state.detail(r), scene.last_step(r))),
        causes=(Cause("path", why, 0.7, Basis.INFERENCE, evidence),), step=scene.step(everyone), sure=True,
        since_s=scene.state.now_s, key="parted",
    )  # fmt: skip


def _said(ranks: list[int], called: Called) -> str:
    op = called.get(ranks[0])
    who = words.ranks_text(ranks)
    if op is None:
        return f"{who} issued one without a call, as DDP's reducer does"
    site = words.place_text(op.site)
    return f"{who} called {op.name} {words.size_text(op)}" + (f" in {site}" if site else "")


def _entered(op: Operation | None) -> str:
    return f"called {op.name} {words.size_text(op)}" if op is not None else "issued an operation, and called none,"
