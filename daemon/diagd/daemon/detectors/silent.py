"""The same operation with other arguments, and no error: some mismatches pass, with wrong numbers.

gloo adds int32 to float32 and takes one rank's MAX with another's SUM without a word. So the finished operations of all
ranks are compared too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.ledger import classes, differing, minority, signature
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Operation

# Places at which it must be seen, as one could be two counters read in the wrong moment; unless the ranks were side by
# side right before it and right after it.
SEEN_TIMES = 3
# An uneven gather is legal where the backend turns it into broadcasts.
_UNEVEN = frozenset({"ALLGATHER", "REDUCE_SCATTER", "ALLGATHER_COALESCED", "REDUCE_SCATTER_COALESCED"})

Fault = tuple[str, tuple[int, ...], tuple[str, ...], str]  # group, culprits, fields, operation


def silent(scene: Scene) -> Iterator[Finding]:
    """One finding for each set of ranks that goes on calling an operation with other arguments than the rest."""
    seen: Counter[Fault] = Counter()
    places_seen: Counter[Fault] = Counter()
    last: dict[Fault, dict[int, Operation]] = {}
    for (group, seq), ops in sorted(scene.ledger.probe.items()):
        done = {r: op for r, op in ops.items() if op.returned_s is not None and not op.failed}
        found = _disagreement(done)
        if found is not None:
            fault = (group, *found, next(iter(done.values())).name)
            beside = all(
                _are_alike(scene.ledger.probe.get((group, near), {}), set(done)) for near in (seq - 1, seq + 1)
            )
            seen[fault] += SEEN_TIMES if beside else 1
            places_seen[fault] += 1
            last[fault] = done
    for fault, times in seen.items():
        if times >= SEEN_TIMES:
            yield _finding(scene, fault, places_seen[fault], last[fault])
    if scene.state.from_dumps:
        yield from _in_dumps(scene)


def _are_alike(ops: dict[int, Operation], ranks: set[int]) -> bool:
    """Whether all these ranks have made the same call there, from the same line."""
    if not ranks <= ops.keys():
        return False
    calls = {(signature(op), op.site.line if op.site is not None else None) for r, op in ops.items() if r in ranks}
    return len(calls) == 1 and all(op.site is not None for op in ops.values())


def _in_dumps(scene: Scene) -> Iterator[Finding]:
    """The same in the flight recorder's entries: each names its place itself, so the first that differs is enough."""
    seen: Counter[Fault] = Counter()
    first: dict[Fault, dict[int, Operation]] = {}
    for (group, _), ops in sorted(scene.ledger.recorder.items()):
        done = {r: op for r, op in ops.items() if op.retired}
        signatures = {r: signature(op) for r, op in done.items()}
        ranked = classes(signatures)
        if len(done) == len(ops) and len(ranked) > 1:
            culprits = minority(ranked)[0]
            fault = (group, culprits, differing(signatures), done[culprits[0]].name)
            seen[fault] += 1
            first.setdefault(fault, done)
    for fault, times in seen.items():
        yield _finding(scene, fault, times, first[fault])


def _disagreement(ops: dict[int, Operation]) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """(culprits, fields) where ranks finished an operation of one name with different arguments."""
    names = {op.name for op in ops.values()}
    if len(ops) < 2 or len(names) != 1:
        return None
    signatures = {r: signature(op) for r, op in ops.items()}
    if names & _UNEVEN:
        signatures = {r: (name, dtype, None, reduce, root) for r, (name, dtype, _, reduce, root) in signatures.items()}
    if len(set(signatures.values())) < 2:
        return None  # nearly always, and much is compared
    ranked = classes(signatures)
    if len(ranked) < 2:
        return None
    return minority(ranked)[0], differing(signatures)


def _finding(scene: Scene, fault: Fault, times: int, ops: dict[int, Operation]) -> Finding:
    group, culprits, fields, name = fault
    others = tuple(sorted(set(ops) - set(culprits))) or culprits
    mine, theirs = ops[culprits[0]], ops[others[-1]]
    text = (
        f"{words.ranks_text(culprits)} {words.verb(culprits, 'calls', 'call')} {name} of group {group} with another "
        f"{' and '.join(fields)} ({_said(mine, fields)}) than {words.ranks_text(others)} ({_said(theirs, fields)})"
    )
    place = words.place_text(mine.site)
    ended = f"it passed at #{mine.seq}" if scene.state.from_dumps else "nothing hangs"
    text += (f" in {place}" if place else "") + f": {ended}, and the numbers are wrong"
    by_rank = defaultdict(list)
    for rank in (*culprits[:2], *others[:2]):
        by_rank[_said(ops[rank], fields)].append(rank)
    often = f", as at {times} places" if times > 1 else ""
    evidence = tuple(
        Evidence(f"{words.op_text(ops[ranks[0]])} with {said}{often}", ops[ranks[0]].source, ranks[0])
        for said, ranks in by_rank.items()
    )
    cause = Cause("arguments", f"the ranks call the same operation with another {' and '.join(fields)}", 0.95,
                  Basis.OBSERVATION, evidence)  # fmt: skip
    return Finding(
        kind="hang.collective_mismatch", severity=Severity.CRITICAL, ranks=culprits, group=group, op_name=name,
        op_seq=mine.seq, names=fields, summary=words.shortened(text + "."), causes=(cause,), sure=True, goes_on=True,
        locations=tuple(p for r in culprits for p in _places(ops[r], r)), step=scene.step(tuple(ops)),
        since_s=mine.entered_s, key=f"silent:{group}:{name}",
    )  # fmt: skip


def _places(op: Operation, rank: int) -> tuple[Location, ...]:
    return places.starting(rank, op.site, ()) if op.site is not None else ()


def _said(op: Operation, fields: tuple[str, ...]) -> str:
    known = {"dtype": op.dtype, "number of elements": f"{op.numel} elements", "reduce op": op.reduce_op,
             "root": f"root {op.root}", "operation": op.name}  # fmt: skip
    return ", ".join(known[f] for f in fields)
