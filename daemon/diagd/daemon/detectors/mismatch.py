"""Ranks of one group that stand at the same place of its order with different operations."""

from collections.abc import Collection, Iterator, Mapping

from diagd.daemon.detectors import coming, history, places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.handled import Handled, handled
from diagd.daemon.detectors.ledger import UNNAMED, classes, differing, minority
from diagd.daemon.detectors.mesh_vote import against_mesh
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import LATE_S, PROVEN_S, Scene
from diagd.daemon.detectors.usual_order import off_the_rounds, out_of_order
from diagd.daemon.state.model import Frame

KIND = "hang.collective_mismatch"
READ_S = 3.0  # histories of ranks that wait are read again within that


def mismatches(scene: Scene) -> Iterator[Finding]:
    """One finding for each place at which ranks of a group provably disagree."""
    for group, seq in sorted({(w.op.group, w.op.seq) for w in _collective_waits(scene)}):
        here = [w for w in _collective_waits(scene) if (w.op.group, w.op.seq) == (group, seq)]
        settled = scene.state.from_dumps or any(w.failed for w in here)  # a dump's entries name their place themselves
        if not settled and min(scene.age_s(w) for w in here) < PROVEN_S:
            continue
        signatures = scene.ledger.signatures(group, seq, _members(here))
        ranked = classes(signatures) if len(signatures) > 1 else []
        tie = minority(ranked)[1]
        if tie and not settled and _way_is_coming(scene, here, signatures):
            continue
        if len(ranked) > 1 and _vote_is_in(scene, here, signatures, tie=tie):
            yield _finding(scene, group, seq, ranked, differing(signatures))


def _way_is_coming(scene: Scene, here: list[Wait], known: Collection[int]) -> bool:
    """Whether it is still to be read what these ranks did before, which may tell whose order is another one."""
    if coming.is_coming(scene, {wait.rank: wait for wait in here}):
        return True
    group, seq = here[0].op.group, here[0].op.seq
    before = scene.ledger.signatures(group, seq - 1, known)
    young = max(scene.age_s(wait) for wait in here) < READ_S and scene.state.ended_s is None
    read = any(scene.state.detail(rank).history or scene.state.detail(rank).recorder for rank in known)
    return young and read and seq > 1 and len(before) < len(known)


def _vote_is_in(scene: Scene, here: list[Wait], known: Collection[int], *, tie: bool) -> bool:
    """Whether the members of whom nothing is known here were waited for: who is in the minority hangs on them.

    On a tie also those that wait elsewhere: one may have been seen on its way here.
    """
    if scene.state.from_dumps or scene.state.ended_s is not None:  # no more will be heard
        return True
    missing = _members(here) - set(known)
    unheard = [r for r in missing if tie or not scene.graph.waits.get(r) or scene.state.status(r).gone]
    return not unheard or max(scene.age_s(w) for w in here) >= LATE_S


def _collective_waits(scene: Scene) -> list[Wait]:
    return [w for waits in scene.graph.waits.values() for w in waits if w.kind == "collective" and w.op.seq > 0]


def _members(waits: list[Wait]) -> set[int]:
    return {m for w in waits for m in (*w.members, w.rank)}


def _finding(scene: Scene, group: str, seq: int, ranked: list[list[int]], fields: tuple[str, ...]) -> Finding:
    culprits, tie = minority(ranked)
    apart = against_mesh(scene, group, seq, ranked) if tie else ()
    new = out_of_order(scene, group, seq, ranked) if tie and not apart else ()
    off = off_the_rounds(scene, group, seq, ranked) if tie and not (apart or new) else ()
    if apart or new or off:
        culprits, tie = apart or new or off, False
        ranked = sorted(ranked, key=lambda ranks: set(ranks) <= set(culprits))
    everyone = tuple(sorted(r for ranks in ranked for r in ranks))
    fell = handled(scene, everyone) if "operation" in fields else {}
    if fell and any(sorted(fell) == ranks for ranks in ranked):  # one side has left its way by an exception
        culprits, tie = tuple(sorted(fell)), False
        ranked = sorted(ranked, key=lambda ranks: ranks == list(culprits))
    else:
        fell = {}
    new, off = ((), ()) if fell else (new, off)
    waiting = tuple(sorted({*everyone, *scene.graph.waiting_for(everyone)} - set(culprits)))
    op = scene.ledger.at(group, seq, culprits[0])
    raised = tuple(Location(r, one.place) for r, one in fell.items() if one.place is not None)
    why = _left(scene, fell) if fell else _cause(scene, group, seq, ranked, tie, fields, apart)
    locations = (*raised, *(place for r in culprits for place in _places(scene, group, seq, r)))
    return Finding(
        kind=KIND,
        severity=Severity.CRITICAL,
        ranks=culprits,
        waiting_ranks=waiting,
        group=group,
        op_name=op.name if op is not None and op.name != UNNAMED else "",
        op_seq=seq,
        names=(*fields, *(one.text.partition(":")[0] for one in fell.values())),
        summary=_summary(scene, group, seq, ranked, culprits, tie, fields, locations, fell),
        locations=locations,
        causes=(_by_order(why, ranked, new, _NEW) if new else _by_order(why, ranked, off, _OFF) if off else why,),
        step=scene.step(everyone),
        sure=True,
        since_s=min((w.since_s for w in _collective_waits(scene) if w.op.group == group), default=0.0),
        key=f"{group}#{seq}",
    )


def _places(scene: Scene, group: str, seq: int, rank: int) -> tuple[Location, ...]:
    """Where the rank called the operation at this place, then where it is now."""
    detail, op = scene.state.detail(rank), scene.ledger.at(group, seq, rank)
    called = (Location(rank, op.site),) if op is not None and op.site is not None else ()
    rest = (*called, *(places.at_wait(detail, scene.graph.wait(rank)) or places.at_end(detail, scene.last_step(rank))))
    strayed = history.strayed_at(scene, group, seq, rank)
    return places.after(rank, strayed, rest) if strayed is not None else places.merged(rank, rest)


def _said(scene: Scene, group: str, seq: int, ranks: list[int], fields: tuple[str, ...]) -> str:
    """ "rank 2 ALLREDUCE float32[66000]", with the fields in which it differs."""
    op = scene.ledger.at(group, seq, ranks[0])
    if op is None:
        return words.ranks_text(ranks)
    parts = [words.ranks_text(ranks), op.name]
    if {"number of elements", "dtype"} & set(fields):
        parts.append(words.size_text(op))
    if "reduce op" in fields:
        parts.append(op.reduce_op)
    if "root" in fields:
        parts.append(f"with root {op.root}")
    return " ".join(p for p in parts if p)


def _summary(
    scene: Scene, group: str, seq: int, ranked: list[list[int]], culprits: tuple[int, ...], tie: bool,
    fields: tuple[str, ...], locations: tuple[Location, ...], fell: Mapping[int, Handled],
) -> str:  # fmt: skip
    if fell:
        rank, one = min(fell.items())
        text = f"{words.ranks_text(culprits)} {words.verb(culprits, 'has', 'have')} failed with {one.text}"
        text += f"{_at(one.place)}, and {words.verb(culprits, 'waits', 'wait')} in what handles it:"
        text += f" {_said(scene, group, seq, [rank], fields)}, where {_said(scene, group, seq, ranked[0], fields)},"
        return words.shortened(f"{text} at operation #{seq} of group {group}.")
    sides = [_said(scene, group, seq, ranks, fields) for ranks in ranked]
    if tie:
        at = "; ".join(
            f"{side}{_at(places.first(locations, ranks[0]))}" for side, ranks in zip(sides, ranked, strict=True)
        )
        text = f"ranks disagree at operation #{seq} of group {group} and wait for each other: {at}."
        text += " No side is in the majority."
    else:
        wrong = "; ".join(
            f"{s}{_at(places.first(locations, r[0]))}" for s, r in zip(sides[1:], ranked[1:], strict=True)
        )
        text = f"{wrong}, where {sides[0]}, at operation #{seq} of group {group}; they wait for each other."
    return words.shortened(text)


def _at(frame: object) -> str:
    text = words.place_text(frame)  # type: ignore[arg-type]
    return f" in {text}" if text else ""


def _cause(
    scene: Scene, group: str, seq: int, ranked: list[list[int]], tie: bool, fields: tuple[str, ...],
    apart: tuple[int, ...],
) -> Cause:  # fmt: skip
    evidence = [_entered(scene, group, seq, ranks) for ranks in ranked]
    if apart:
        right = words.ranks_text(ranked[0])
        evidence.append(Evidence(f"the mesh's other groups of this kind entered what {right} did", "flight recorder"))
    if (parted := _parted_at(scene, group, seq, ranked)) < seq:
        evidence.append(Evidence(f"the histories of group {group} part at #{parted} already", "flight recorder"))
    # An operation's name differs where the program's path does; a field, where its data does.
    path = "operation" in fields or _from_other_lines(scene, group, seq, ranked)
    met = "different operations" if "operation" in fields else "calls from different lines"
    text = (
        f"the ranks took different paths in the program and met in {met}"
        if path
        else f"the ranks call the same operation with another {' and '.join(fields) or 'signature'}"
    )
    if tie:
        text += "; which of them is right cannot be told by a vote"
    return Cause("path" if path else "arguments", text, 0.95, Basis.OBSERVATION, tuple(evidence))


_NEW = "come to an operation that no rank came to before"
_OFF = "left the order of operations that all have kept in each step before"


def _by_order(cause: Cause, ranked: list[list[int]], new: tuple[int, ...], what: str) -> Cause:
    """The same, of which it was not a vote that told who is at fault."""
    others = words.ranks_text(ranked[0])
    text = f"{words.ranks_text(new)} {words.verb(new, 'has', 'have')} {what}"
    text += f", where {others} {words.verb(ranked[0], 'goes', 'go')} on as ever"
    text += f"; or all were to do so in this step, and {others} did not"
    return Cause(cause.key, text, Basis.INFERENCE.ceiling, Basis.INFERENCE, cause.evidence)


def _from_other_lines(scene: Scene, group: str, seq: int, ranked: list[list[int]]) -> bool:
    """Whether two sides have called it from lines that are both sides', or one from such and one from a new line."""
    sides = []
    for ranks in ranked[:2]:
        ops = [scene.ledger.at(group, seq, rank) for rank in ranks]
        known = {
            _line(op.site) for r in ranks for op in scene.state.detail(r).history if (op.group, op.seq) != (group, seq)
        }
        sides.append(({_line(op.site) for op in ops if op is not None} - {None}, known))
    (mine, before), (theirs, earlier) = sides
    if not mine or not theirs or mine & theirs:
        return False
    common = [mine <= earlier, theirs <= before]
    new = [not mine & (before | earlier), not theirs & (before | earlier)]
    return any(common) and all(one or other for one, other in zip(common, new, strict=True))


def _line(site: Frame | None) -> tuple[str, int] | None:
    return (site.file, site.line) if site is not None else None


def _left(scene: Scene, fell: Mapping[int, Handled]) -> Cause:
    told = tuple(
        Evidence(f"the main thread stands in an exception: {words.shortened(one.text, 200)}", "probe", rank,
                 scene.step((rank,))) for rank, one in sorted(fell.items())[:4]
    )  # fmt: skip
    text = "its own code failed, and the handler (finally, except) calls an operation that the others do not come to"
    return Cause("handling", text, 0.95, Basis.OBSERVATION, told)


def _entered(scene: Scene, group: str, seq: int, ranks: list[int]) -> Evidence:
    op = scene.ledger.at(group, seq, ranks[0])
    what = words.op_text(op, with_size=True) if op is not None else f"#{seq}"
    called = words.place_text(op.site) if op is not None else ""
    source = "probe" if op is None or op.source == "probe" else "flight recorder"
    text = f"{words.ranks_text(ranks)} entered {what}" + (f" at {called}" if called else "")
    return Evidence(text, source, ranks[0], scene.step((ranks[0],)))


def _parted_at(scene: Scene, group: str, seq: int, ranked: list[list[int]]) -> int:
    """The first place, as far back as all are known, at which these ranks' operations differ."""
    everyone = [r for ranks in ranked for r in ranks]
    first = seq
    for place in range(seq - 1, max(seq - 2000, 0), -1):
        signatures = scene.ledger.signatures(group, place, everyone)
        if not signatures and scene.state.from_dumps:
            continue  # where all agreed, nothing was kept
        if len(signatures) < len(everyone):
            break
        if len(classes(signatures)) > 1:
            first = place
    return first
