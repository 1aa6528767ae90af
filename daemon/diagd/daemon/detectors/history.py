"""Where the ranks' histories part: the place of a hang and the place of the mistake differ.

Operations pair by their order alone, so after one call too many (or too few) a rank's later operations meet the others'
wrong ones, often without an error, until two meet that cannot. The call sites show it earlier than the operations do.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.columns import NEVER
from diagd.daemon.state.model import Detail, Frame, Operation

AGREED_BEFORE = 8  # so many places at which all were called from the same line, or the lines tell nothing
AGREES_SURELY = 32  # so many: not by chance, as within one step of a model called from one line; look no further
SEND, RECV = "SEND", "RECV"
STEPS_BACK = 3  # by which it is known how many there are in a step
NEARLY = 0.4  # of one: steps are not of one length
LOOKS_BACK = 512  # operations; a ring of the box holds no more


def strayed_at(scene: Scene, group: str, seq: int, rank: int) -> Frame | None:
    """The rank's call at the first place where it was called from another line than the others' was.

    None where that is the place of the hang itself, where the lines have always differed, or where they are not known.
    """
    first: Frame | None = None
    agreed = 0
    for place in range(seq - 1, max(seq - LOOKS_BACK, 0), -1):
        mine, theirs = _sites(scene, group, place, rank)
        if mine is None or theirs is None:
            break
        if _line(mine) == theirs:
            agreed += 1
            if agreed >= AGREES_SURELY:
                break
        else:
            first, agreed = mine, 0
    return first if agreed >= AGREED_BEFORE else None


def strayed_before(scene: Scene, rank: int) -> Frame | None:
    """The same for a rank of which it is not known in which place of its group's order it stands."""
    last = next((op for op in reversed(scene.state.detail(rank).history) if op.seq > 0 and not op.p2p), None)
    if last is None:
        return None
    others = [scene.ledger.entered(last.group, other) for other in scene.state.details if other != rank]
    return strayed_at(scene, last.group, min(last.seq, max(others, default=0)) + 1, rank)


def first_time(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Of these ranks those that came to their wait by a way that no rank ever went before, where that is not all.

    A way is a call site and the one before it. Order that all ranks have kept for many steps is the program's; who
    breaks it is at fault, also where a vote of those on the circle is a tie. What is issued from C++ has no call site:
    where such is waited in, a way is from a group to a group, as the flight recorders have it.
    """
    if any(wait.op.source != "probe" for wait in waits.values()):
        return _first_move(scene, waits)
    known = {way for detail in scene.state.details.values() for way in _ways(detail)}
    ways = {rank: _way_to(scene.state.detail(rank), wait.op) for rank, wait in waits.items()}
    if any(way is None for way in ways.values()):
        return ()
    strangers = {r for r, way in ways.items() if way not in known}
    if not strangers or len(strangers) == len(ways):
        return ()
    ends = {end for _, end in known}
    new = all(way is not None and way[1] not in ends for r, way in ways.items() if r in strangers)
    return tuple(sorted((new and _left_behind(scene, waits, strangers)) or strangers))


def _left_behind(scene: Scene, waits: Mapping[int, Wait], strangers: set[int]) -> set[int]:
    """Who did not come along, where most ranks came by the same new line to the operation that these are in.

    So it is in a first evaluation. Ranks that are in that operation by their usual line have not come along.
    """
    theirs = {(waits[rank].op.group, waits[rank].op.seq) for rank in strangers}
    lines = {_line(site) for rank in strangers if (site := waits[rank].op.site) is not None}
    there = {rank: held[0].op for rank, held in scene.graph.waits.items() if held}
    along = {
        rank for rank, op in there.items()
        if (op.group, op.seq) in theirs and op.site is not None and _line(op.site) in lines
    }  # fmt: skip
    members = {member for rank in strangers for member in waits[rank].members}
    if len(theirs) > 1 or min(seq for _, seq in theirs) <= 0 or 2 * len(along) <= len(members):
        return set()
    return set(waits) - along


def _first_move(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    moves = {rank: _moves(detail, waits.get(rank)) for rank, detail in scene.state.details.items()}
    if any(len(moves.get(rank, ())) <= AGREED_BEFORE or not _is_recorded(moves[rank]) for rank in waits):
        return ()
    known = {move for rank, made in moves.items() for move in (made[:-1] if rank in waits else made)}
    strangers = tuple(sorted(rank for rank in waits if moves[rank][-1] not in known))
    return strangers if len(strangers) < len(waits) else ()


def alone_there(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Who has come to an operation that no rank ever came to, before most of its group, while the rest goes as ever.

    A first evaluation is such an operation too: there most are, and who is not has not come along.
    """
    moves = {rank: _moves(detail, waits.get(rank)) for rank, detail in scene.state.details.items()}
    if any(len(moves.get(rank, ())) <= AGREED_BEFORE for rank in waits):
        return ()
    new = [rank for rank in waits if not _is_recorded(moves[rank])]
    if any(waits[rank].kind != "collective" for rank in new):
        return ()  # who receives for the first time may have been told to by all, and not been sent to
    known = {move for rank, made in moves.items() for move in (made[:-1] if rank in waits else made)}
    if not 0 < len(new) < len(waits) or any(moves[r][-1] not in known for r in waits if r not in new):
        return ()
    there = [held[0].op for held in scene.graph.waits.values() if held]
    met = {r: sum((op.group, op.name) == (waits[r].op.group, waits[r].op.name) for op in there) for r in new}
    return tuple(sorted(new)) if all(2 * met[r] < len(waits[r].members) for r in new) else ()


Move = tuple[tuple[str, str], tuple[str, str]]


def _is_recorded(moves: list[Move]) -> bool:
    """Whether the operation that the last of them leads to is one that the recorder has seen finish there before."""
    return any(moves[-1][1] in move for move in moves[:-1])


def _moves(detail: Detail, wait: Wait | None) -> list[Move]:
    """From which group's operation to which the rank's finished ones went, and then to the one that it waits in."""
    done = sorted((op for op in detail.recorder if op.retired), key=lambda op: op.entered_s)
    ops = [*done, *([wait.op] if wait is not None else [])]
    return list(pairwise((op.group, op.name) for op in ops))


def new_partner(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Of these ranks those that send to, or receive from, a rank with which they never did before, where others do not.

    A neighbour in a ring or a pipeline stays the same from step to step.
    """
    found = []
    for rank, wait in waits.items():
        peers = [
            op.peer for op in scene.state.detail(rank).history if op.p2p and op.name == wait.op.name and op.returned_s
        ]
        if wait.kind == "p2p" and wait.op.peer >= 0 and len(peers) >= AGREED_BEFORE and wait.op.peer not in peers:
            found.append(rank)
    return tuple(sorted(found)) if len(found) < len(waits) else ()


def kept_partner(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Of these ranks those that go on with their partners, where most that send or receive have turned to new ones."""
    others = {rank: found[0] for rank, found in scene.graph.waits.items() if found and found[0].kind == "p2p"}
    turned = new_partner(scene, others)
    if 2 * len(turned) <= len(others):
        return ()
    return tuple(sorted(rank for rank in waits if rank in others and rank not in turned))


def stopped_sending(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Of ranks that all wait to receive, those that have gone on without the send that someone waits for.

    Each has sent to whom waits for it at even distances in its own operations until then. None where that is all.
    """
    if any(wait.op.name != RECV for wait in waits.values()):
        return ()
    found = {wait.op.peer for rank, wait in waits.items() if _went_on(scene.state.details.get(wait.op.peer), rank)}
    return tuple(sorted(found)) if len(found) < len(waits) else ()


def sends_more(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Of ranks that all wait to send, those in a send beyond as many as they usually make in a step, by a new way.

    Two sends face each other: each rank has what the other will want, and one must receive first. As there is more to
    exchange in this step than in those before, their order does not tell which.
    """
    if any(wait.op.name != SEND for wait in waits.values()):
        return ()
    ranks = first_time(scene, waits)
    return ranks if all(has_done_its_share(scene, rank, SEND) for rank in ranks) else ()


def left_one_out(scene: Scene, waits: Mapping[int, Wait]) -> tuple[int, ...]:
    """Of these ranks those in a collective that left out the send, or receive, that someone waits for.

    All others have called it at that line since the ranks met last, and these have called something there as well: in
    an exchange that all take part in, as around a ring, it is not for the majority that has gone on to say who is odd.
    """
    found = set()
    for rank, wait in waits.items():
        partner = waits.get(wait.op.peer)
        if wait.kind != "p2p" or wait.op.site is None or partner is None or partner.kind != "collective":
            continue
        wanted, line = RECV if wait.op.name == SEND else SEND, _line(wait.op.site)
        called = {other: _called_at(detail, line) for other, detail in scene.state.details.items()}
        counts = {other: names.count(wanted) for other, names in called.items() if names}
        mine = counts.pop(partner.rank, None)
        if mine is not None and rank in counts and len(counts) > 1 and mine < min(counts.values()):
            found.add(partner.rank)
    return tuple(sorted(found))


def _called_at(detail: Detail, line: tuple[str, int]) -> list[str]:
    """The sends and receives that it has called at a line since its last finished collective."""
    met = max((op.returned_s or 0.0 for op in detail.history if not op.p2p), default=0.0)
    ops = [op for op in (*detail.history, *detail.operations) if op.p2p and op.site is not None and op.entered_s >= met]
    called = {(op.entered_s, op.name, op.peer): op.name for op in ops if op.site is not None and _line(op.site) == line}
    return list(called.values())


def has_done_its_share(scene: Scene, rank: int, name: str) -> bool:
    """Whether it has finished as many sends, or receives, since its last step as it usually does in one."""
    done, usual = _share(scene, rank, name)
    return usual >= 1 - NEARLY and done >= usual - NEARLY


def has_left_some_out(scene: Scene, rank: int, name: str) -> bool:
    """Whether it has finished fewer than that, by one at least."""
    done, usual = _share(scene, rank, name)
    return done <= usual - 1 + NEARLY / STEPS_BACK


def _share(scene: Scene, rank: int, name: str) -> tuple[int, float]:
    """How many sends, or receives, it has finished since its last step, and how many it did in the steps before."""
    columns = scene.state.columns
    began_s, step_s = float(columns.step_s[rank]), float(columns.step_interval_s[rank])
    if step_s == NEVER or step_s <= 0:
        return 0, 0.0
    done = [op.entered_s - began_s for op in scene.state.detail(rank).history
            if op.p2p and op.name == name and op.returned_s is not None and not op.failed]  # fmt: skip
    return sum(at > 0 for at in done), sum(-STEPS_BACK * step_s < at <= 0 for at in done) / STEPS_BACK


def _went_on(detail: Detail | None, receiver: int) -> bool:
    passed = sorted((op for op in detail.history if op.p2p), key=lambda op: op.entered_s) if detail is not None else []
    sends = [place for place, op in enumerate(passed) if op.name == SEND and op.peer == receiver]
    if len(sends) <= AGREED_BEFORE:
        return False
    return len(passed) - 1 - sends[-1] > max(after - before for before, after in pairwise(sends))


Way = tuple[tuple[str, int], tuple[str, int]]


def _ways(detail: Detail) -> Iterator[Way]:
    """From which line to which the rank's finished operations went."""
    done = [op.site for op in detail.history if op.returned_s is not None and not op.failed and op.thread == detail.pid]
    for before, after in pairwise(done):
        if before is not None and after is not None:
            yield _line(before), _line(after)


def _way_to(detail: Detail, op: Operation) -> Way | None:
    before = [
        o.site for o in detail.history
        if o.returned_s is not None and o.thread == detail.pid and o.entered_s < op.entered_s and o.site is not None
    ]  # fmt: skip
    return (_line(before[-1]), _line(op.site)) if before and op.site is not None and op.source == "probe" else None


def _sites(scene: Scene, group: str, place: int, rank: int) -> tuple[Frame | None, tuple[str, int] | None]:
    """The rank's line at a place of the group's order, and the line of most others."""
    at = scene.ledger.probe.get((group, place), {})
    own = at.get(rank)
    others = Counter(_line(op.site) for r, op in at.items() if r != rank and op.site is not None)
    return own.site if own is not None else None, others.most_common(1)[0][0] if others else None


def _line(site: Frame) -> tuple[str, int]:
    return site.file, site.line
