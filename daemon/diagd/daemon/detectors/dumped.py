"""What dumps alone can say of a rank that others wait for, and what they cannot.

A dump shows what its rank had entered, and nothing of whether the rank lived: it may be stuck, late or on another path.
Where a dump folder holds its stack, one look at it is there: enough to see what it rests in, not for how long.
That, its box tells where it is there.
"""

from collections.abc import Iterator

from diagd.daemon.detectors import companions, elsewhere, words
from diagd.daemon.detectors.blocked import RESTING, SLEEPS, how_it_rests
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.root import Root, finding_of, waiting_text
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import OTHERS
from diagd.daemon.state.model import Detail, Operation

_ASLEEP = ("S", "D")
YOUNG_S = 1.0  # a wait that is shorter is any step's
STOOD = 0.8  # of what the others have waited for


def never_entered(scene: Scene, root: Root) -> Finding | None:
    """The finding for a rank whose own dump lacks what the others wait in; None where they had not waited for long."""
    wait = next((w for d in root.dependents if (w := scene.graph.for_whom.get((d, root.rank)))), None)
    if wait is None or root.waited_s < scene.late_s:
        return None
    if rests := _rests(scene, root):
        return _resting(scene, root, wait, rests)
    last = _last(root.detail, wait)
    kind = "hang.p2p_unmatched" if wait.kind == "p2p" else "hang.data_starved" if root.starved else "hang.rank_missing"
    severity = Severity.CRITICAL if root.waited_s >= scene.state.hang_after_s else Severity.WARNING
    text = "its dump ends before this operation; whether it is stuck, late or on another path, a dump does not show"
    own = Evidence(_own_text(last, wait), "flight recorder", root.rank, scene.step((root.rank,)))
    key = "data" if root.starved else "path"
    cause = Cause(key, text, 0.85, Basis.OBSERVATION, (own, *waiting_text(scene, root)))
    said = f"never entered {elsewhere.expected(wait)}"
    if not root.locations and last is not None and last.site is not None:
        root = root.with_locations((Location(root.rank, last.site),))
        said += f", and was last in {words.op_text(last)}"
    return finding_of(scene, root, kind, severity, cause, said, sure=True)


def _rests(scene: Scene, root: Root) -> str:
    """What its main thread slept in when it was looked at; empty where it did not, or may wait for the GIL.

    A sleep of its own will may be a short one between two steps, unless its box tells that there were none for long.
    """
    stack = root.detail.stack
    if stack is None or stack.state not in _ASLEEP or root.place is None or any(t.holds_gil for t in stack.threads):
        return ""
    stands = stack.syscall in RESTING or (stack.syscall in SLEEPS and _stood_s(scene, root) >= STOOD * root.waited_s)
    return how_it_rests(root) if stands else ""


def _stood_s(scene: Scene, root: Root) -> float:
    """For how long the rank's box, where the dump has it, had shown no step, no phase and no operation."""
    c, rank = scene.state.columns, root.rank
    ended = (op.returned_s or op.entered_s for op in root.detail.history)
    moved_s = max(float(c.step_s[rank]), float(c.phase_s[rank]), *ended, 0.0)
    return scene.state.now_s - moved_s if moved_s > 0 else 0.0


def _resting(scene: Scene, root: Root, wait: Wait, how: str) -> Finding:
    """The finding for a rank that slept outside communication while the others waited for it."""
    stack = root.detail.stack
    kind = "hang.data_starved" if root.starved else "hang.rank_blocked"
    severity = Severity.CRITICAL if root.waited_s >= scene.state.hang_after_s else Severity.WARNING
    call = f", in {stack.syscall}()" if stack is not None else ""
    own = [Evidence(f"in {words.place_text(root.place)}{call}", "stack", root.rank, scene.step((root.rank,)))]
    beside = companions.awaited(root.detail, how)
    text = f"when it was looked at, it was in its own code and {how}{beside.rstrip(',')}"
    stood_s = _stood_s(scene, root)
    if stood := stood_s >= STOOD * root.waited_s:
        text += f"; its box had shown no step and no operation for {words.seconds_text(stood_s)}"
        own.append(Evidence(f"no step and no operation for {words.seconds_text(stood_s)}", "probe", root.rank))
    else:
        text += "; for how long, one look does not show"
    key = "data" if root.starved else companions.key_of(beside) or ("lock" if how == companions.LOCK else "blocked")
    evidence = (*own, *companions.evidence(root.detail, how), *waiting_text(scene, root))
    sure, basis = (0.85, Basis.OBSERVATION) if stood else (0.7, Basis.INFERENCE)
    cause = Cause(key, text, sure, basis, evidence)
    said = f"never entered {elsewhere.expected(wait)}: it {how}{beside}"
    return finding_of(scene, root, kind, severity, cause, said, sure=True)


def _last(detail: Detail, wait: Wait) -> Operation | None:
    """The rank's last operation in that group; else its last in any."""
    known = [op for op in (*detail.recorder, *detail.history) if op.group == wait.op.group and not op.p2p]
    found = known or [*detail.recorder, *detail.history]
    return found[-1] if found else None


def _own_text(last: Operation | None, wait: Wait) -> str:
    if last is None:
        return "its dump holds no operation at all"
    return f"its dump holds no {elsewhere.expected(wait)}; its last operation is {words.op_text(last)}"


def undecided(scene: Scene) -> Iterator[str]:
    """What stays open because of ranks of which it is not known what they entered: a sentence for each operation."""
    seen: set[tuple[object, ...]] = set()
    for rank, waits in sorted(scene.graph.waits.items()):
        for wait in waits:
            others = (wait.op.peer,) if wait.kind == "p2p" else wait.members
            reasons = {m: why for m in others if m != rank and (why := scene.state.why_not_known(m, wait.op.group))}
            if len(others) < 2 and wait.kind == "collective" and scene.state.has_unnamed(wait.op.group):
                reasons[OTHERS] = "no dump names its members"
            place = (wait.op.group, wait.op.name, wait.op.seq, *((rank,) if wait.kind == "p2p" else ()))
            if not reasons or scene.graph.edges.get(rank) or place in seen:
                continue
            seen.add(place)
            yield _open_text(scene, wait, reasons)


def young(scene: Scene) -> Iterator[str]:
    """Waits for ranks that have not come, for so short a time that a job in order has such: a sentence for each."""
    there: dict[tuple[str, int, str], list[Wait]] = {}
    for rank, waits in sorted(scene.graph.waits.items()):
        for wait in waits:
            lasts = YOUNG_S <= scene.age_s(wait) < scene.late_s
            if wait.kind == "collective" and scene.graph.edges.get(rank) and lasts:
                there.setdefault((wait.op.group, wait.op.seq, wait.op.name), []).append(wait)
    for held in there.values():
        ranks = tuple(sorted({wait.rank for wait in held}))
        missing = tuple(sorted(set(held[0].members) & set().union(*(scene.graph.edges[rank] for rank in ranks))))
        if missing:
            lasted = words.seconds_text(max(map(scene.age_s, held)))
            text = f"{words.wait_text(ranks)} in {words.op_text(held[0].op)} for {words.ranks_text(missing)}"
            yield f"{text}, in these dumps for {lasted}: too short a time to call it a hang"


def _open_text(scene: Scene, wait: Wait, reasons: dict[int, str]) -> str:
    there = [r for r, w in scene.graph.waits.items() for one in w if (one.op.group, one.op.seq, one.op.name) ==
             (wait.op.group, wait.op.seq, wait.op.name)] if wait.kind != "p2p" else [wait.rank]  # fmt: skip
    by_reason: dict[str, list[int]] = {}
    for rank, why in reasons.items():
        by_reason.setdefault(why, []).append(rank)
    told = {why: f"{words.ranks_text(ranks)} {why}" if ranks != [OTHERS] else why for why, ranks in by_reason.items()}
    why = "; ".join(told.values())
    return f"{words.wait_text(sorted(set(there)))} in {words.op_text(wait.op)}, and for whom is not known: {why}"
