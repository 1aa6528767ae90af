"""Ranks that fell with the others as communication broke down, and had met nobody: they had only waited for these.

What breaks is an operation in which two ranks met. A rank in a call on a group of which no other member had come there
has met none, where all operations of that group are calls that the probe sees, and the others have a group without it.
"""

from collections.abc import Mapping

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.history import AGREED_BEFORE
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Frame

Calls = Mapping[int, Frame]


def bystanders(scene: Scene, calls: Calls) -> tuple[int, ...]:
    """Of these ranks those that had met nobody; none where the library aborted no rank, or too few remain."""
    aborted = {r for r, d in scene.state.processes().items() if d.exit is not None and d.exit.signal == "SIGABRT"}
    alone = tuple(sorted(r for r in calls if r not in aborted and _met_nobody(scene, r))) if aborted else ()
    rest = set(calls) - set(alone)
    return alone if len(rest) > 1 and _have_a_group(scene, rest, set(alone)) else ()


def _have_a_group(scene: Scene, ranks: set[int], without: set[int]) -> bool:
    groups = (set(group.ranks) for group in scene.state.detail(min(ranks)).groups)
    return any(ranks <= members and not members & without for members in groups)


def _met_nobody(scene: Scene, rank: int) -> bool:
    wait = scene.graph.wait(rank)
    if wait is None or wait.op.source != "probe" or wait.kind != "collective" or wait.op.seq <= 0:
        return False
    others = [member for member in wait.members if member != rank]
    came = any(scene.ledger.entered(wait.op.group, member) >= wait.op.seq for member in others)
    return bool(others) and not came and _always_called(scene, rank, wait.op.group)


def _always_called(scene: Scene, rank: int, group: str) -> bool:
    detail = scene.state.detail(rank)
    seqs = {op.seq for op in (*detail.history, *detail.operations) if op.group == group and op.seq > 0 and not op.p2p}
    return len(seqs) > AGREED_BEFORE and max(seqs) - min(seqs) + 1 == len(seqs)


def fell_between(scene: Scene, calls: Calls, waiting: tuple[int, ...]) -> Finding:
    """The finding where all that met stood in one line: which of them is wrong is not known."""
    ranks = tuple(sorted(set(calls) - set(waiting)))
    where = words.place_text(calls[ranks[0]])
    who = words.ranks_text(ranks)
    text = f"communication broke down between {who}, all in {where}: they met in different operations there; "
    text += f"{words.wait_text(waiting)} for them."
    evidence = tuple(
        Evidence(f"was in {words.place_text(calls[r])} when communication broke down", "stack", r, scene.step((r,)))
        for r in (*ranks, *waiting)[:6]
    )
    why = "what they issued there did not fit; no call of it is seen, so which of them is wrong cannot be told"
    return Finding(
        kind="hang.collective_mismatch", severity=Severity.CRITICAL, ranks=ranks, waiting_ranks=waiting,
        summary=words.shortened(text), causes=(Cause("path", why, 0.7, Basis.INFERENCE, evidence),),
        locations=tuple(p for r in ranks for p in places.starting(r, calls[r], places.as_seen(scene.state.detail(r)))),
        step=scene.step(tuple(calls)), sure=True, since_s=scene.state.now_s, key="parted",
    )  # fmt: skip
