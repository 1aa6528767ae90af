"""Communication broke down and no operation shows a contradiction: what the ranks were calling when it did.

The operations that C++ issues die with their process, so after an abort all that is left of them is where each rank's
own code stood. Ranks can be one operation apart without a fault, so only a call that this job never made before is
blamed on the ranks that made it, or where most did on those that did not; else the ranks are said to disagree.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from diagd.daemon.detectors import history, places, words
from diagd.daemon.detectors.backend import rests_in_communication
from diagd.daemon.detectors.bystanders import bystanders, fell_between
from diagd.daemon.detectors.deaths import first_deaths
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.issuing import issued_otherwise
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail, Frame, Operation

STOOD_S = 2.0  # ranks that have stood so long are not one operation apart by chance
OFTEN = 8  # calls from one line, all of them in other groups, or the line tells nothing
SETTLED_S = 1.0  # after the first end, so that all that the ranks left behind has been read


Place = tuple[str, int, bool]  # file, line, and whether a call from there was seen as no rank had made it there before


def parted(scene: Scene) -> Iterator[Finding]:
    """Ranks that stood in different calls when all of them fell out of communication."""
    if not _broke_down(scene) or first_deaths(scene):
        return
    calls = {r: frame for r in scene.state.ranks() if (frame := _call(scene, r)) is not None}
    waiting = bystanders(scene, calls)
    met = {rank: frame for rank, frame in calls.items() if rank not in waiting}
    by_place: dict[Place, list[int]] = defaultdict(list)
    for rank, frame in met.items():
        by_place[_place_of(scene, rank, frame)].append(rank)
    if len(by_place) > 1:
        found = _finding(scene, met, by_place)
        yield replace(found, waiting_ranks=tuple(sorted({*found.waiting_ranks, *waiting})))
    elif waiting:
        yield fell_between(scene, calls, waiting)
    elif (otherwise := issued_otherwise(scene)) is not None:
        yield otherwise


def _broke_down(scene: Scene) -> bool:
    """Whether some rank fell out of communication, long enough ago that all is known."""
    ends = [d.exit for d in scene.state.details.values() if d.exit is not None and d.attempt == scene.state.attempt]
    fell = [e for e in ends if e.signal == "SIGABRT" or (e.code not in (None, 0) and not e.signal)]
    if not fell:
        return False
    if scene.state.ended_s is not None:
        return True
    heard = all(d.history for d in scene.state.details.values())
    return heard and scene.state.now_s - min(e.at_s for e in fell) >= SETTLED_S


def _call(scene: Scene, rank: int) -> Frame | None:
    """The user's line from which the rank communicates, or communicated when it ended."""
    detail, wait = scene.state.detail(rank), scene.graph.wait(rank)
    if wait is not None and wait.op.site is not None:
        return wait.op.site
    main = detail.stack.main if detail.stack is not None else None
    if main is not None and main.user_frames and rests_in_communication(detail):
        return main.user_frames[0]
    if wait is None or detail.ending is None:
        return None
    return next((f for f in detail.ending.frames if f.user), None)


def _place_of(scene: Scene, rank: int, call: Frame) -> Place:
    """One line may hold both a backward pass and a call."""
    return call.file, call.line, _called(scene, rank) is not None and _unusual(scene, rank, call)


def _stood_s(scene: Scene, rank: int) -> float:
    """For how long the rank had been in its call when it fell out of it."""
    detail, wait = scene.state.detail(rank), scene.graph.wait(rank)
    fell_s = detail.ending.at_s if detail.ending is not None else detail.exit.at_s if detail.exit is not None else 0.0
    if wait is not None and wait.op.source == "probe":
        return (wait.op.returned_s or fell_s) - wait.op.entered_s
    return fell_s - float(scene.state.columns.phase_s[rank])


def _unusual(scene: Scene, rank: int, call: Frame) -> bool:
    """Whether no rank is known to have communicated from there before, where that would be known.

    What is called for the first time is a call that the probe sees, or a backward pass. A functional collective and
    what C++ issues in forward leave no call site, so there nothing is known of the steps before.
    """
    if not (_called(scene, rank) or _in_backward(scene.state.detail(rank))):
        return False
    is_called = _called(scene, rank) is not None
    for detail in scene.state.details.values():
        known = [op.site for op in detail.history[:-1] if not op.failed and op.returned_s is not None]
        sites = known if is_called else [*known, detail.backward_site]
        if any(site is not None and (site.file, site.line) == (call.file, call.line) for site in sites):
            return False
    return True


def _at_new_places(scene: Scene, calls: dict[int, Frame], by_place: dict[Place, list[int]]) -> list[int]:
    """The ranks in calls that no rank is known to have made before; what is known of one holds for its place."""
    new = {_place_of(scene, r, calls[r]) for r in calls if _unusual(scene, r, calls[r])}
    return sorted(r for place in new for r in by_place[place])


def _other_group(scene: Scene, rank: int) -> bool:
    """Whether its call goes to another group than ever before, and it has made that call often."""
    op = _called(scene, rank)
    if op is None:
        return False
    before = [
        o.group
        for o in scene.state.detail(rank).history
        if o.returned_s is not None and not o.failed and o.entered_s < op.entered_s and _same_call(o, op)
    ]
    return len(before) >= OFTEN and op.group not in before


def _same_call(one: Operation, other: Operation) -> bool:
    if one.site is None or other.site is None:
        return False
    return (one.site.file, one.site.line, one.name) == (other.site.file, other.site.line, other.name)


def _called(scene: Scene, rank: int) -> Operation | None:
    """The operation that it stood in, where the probe saw the call."""
    wait = scene.graph.wait(rank)
    return wait.op if wait is not None and wait.op.source == "probe" and wait.op.site is not None else None


def _in_backward(detail: Detail) -> bool:
    """Whether the autograd engine ran when it fell out of communication, or at its last look."""
    main = detail.stack.main if detail.stack is not None else None
    frames = detail.ending.frames if detail.ending is not None else main.frames if main is not None else ()
    return any("/torch/autograd/" in f.file for f in frames)


def _finding(scene: Scene, calls: dict[int, Frame], by_place: dict[Place, list[int]]) -> Finding:
    strange = _at_new_places(scene, calls, by_place)
    elsewhere = [] if strange else [r for r in sorted(calls) if _other_group(scene, r)]
    strange = strange or elsewhere
    told = 0 < len(strange) <= len(calls) / 2  # of more than half it is the others that did not come along
    fewest, tie = minority(sorted(by_place.values(), key=lambda ranks: (-len(ranks), ranks)))
    stayed = tuple(sorted(set(calls) - set(strange))) if 2 * len(strange) > len(calls) else ()
    stood = all(_stood_s(scene, r) >= STOOD_S for r in calls)
    voted = not told and not tie and (stood or (len(by_place) == 2 and _met_in_one(scene, set(calls) - set(fewest))))
    culprits = tuple(strange) if told else stayed or (fewest if voted else tuple(sorted(calls)))
    others = tuple(sorted(set(calls) - set(culprits)))
    sides = "; ".join(
        f"{words.ranks_text(ranks)} in {_doing(scene, ranks[0], calls)}" for ranks in sorted(by_place.values())
    )
    text = f"communication broke down with the ranks in different calls: {sides}"
    if told:
        before = (
            "had always made that call in another group" if elsewhere else "had never communicated from there before"
        )
        text += f"; {words.ranks_text(culprits)} {before}"
    elif stayed:
        text += f"; {words.ranks_text(stayed)} did not go along with the others, whose call was new"
    elif voted:
        text += "".join(_strayed(scene, rank) for rank in culprits[:2])
    evidence = tuple(
        Evidence(f"was in {words.place_text(frame)} when communication broke down", "stack", rank, scene.step((rank,)))
        for rank, frame in list(calls.items())[:6]
    )
    why = "the ranks took different paths in the program and met in different operations"
    why += "" if told or stayed or voted else "; which of them is right cannot be told"
    cause = Cause("path", why, 0.7, Basis.INFERENCE, evidence)
    return Finding(
        kind="hang.collective_mismatch", severity=Severity.CRITICAL, ranks=culprits, waiting_ranks=others,
        summary=words.shortened(text + "."), causes=(cause,), step=scene.step(tuple(calls)), sure=True,
        locations=tuple(p for r in culprits for p in _places(scene, calls, r)), since_s=scene.state.now_s, key="parted",
    )  # fmt: skip


def _doing(scene: Scene, rank: int, calls: dict[int, Frame]) -> str:
    """The line, and what was called or issued from there where others stood in the same line."""
    text, here = words.place_text(calls[rank]), calls[rank]
    alike = [r for r, frame in calls.items() if (frame.file, frame.line) == (here.file, here.line)]
    op = _called(scene, rank)
    if len({_place_of(scene, r, here) for r in alike}) < 2:
        return text
    return f"{words.op_text(op)} at {text}" if op is not None else f"the backward pass at {text}"


def _strayed(scene: Scene, rank: int) -> str:
    """Where its calls had begun to be others than most ranks' before it came to where it broke down."""
    frame = history.strayed_before(scene, rank)
    return f"; rank {rank} had gone another way since {words.place_text(frame)}" if frame is not None else ""


def _met_in_one(scene: Scene, ranks: set[int]) -> bool:
    """Whether most were in one operation: all have come out of the one before it, so the rest belong there, too."""
    ops = [op for rank in sorted(ranks) if (op := _called(scene, rank)) is not None]
    places = {(op.group, op.seq) for op in ops}
    return len(ops) == len(ranks) and 2 * len(ops) > scene.state.world_size and len(places) == 1 and ops[0].seq > 1


def _places(scene: Scene, calls: dict[int, Frame], rank: int) -> tuple[Location, ...]:
    found = places.starting(rank, calls[rank], places.as_seen(scene.state.detail(rank)))
    strayed = history.strayed_before(scene, rank)
    return places.after(rank, strayed, found) if strayed is not None else found
