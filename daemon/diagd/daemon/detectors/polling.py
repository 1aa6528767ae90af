"""Ranks that ask the store again and again for what does not come: each call returns, and none goes on."""

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.root import Root, waiting_text
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail, Operation

POLLS = 16  # calls in a row, of one line and for one key
RECENT_S = 10.0  # since the last of them; histories are read every five seconds at least, while ranks wait


def polling(scene: Scene, root: Root) -> Finding | None:
    """One finding for all ranks that ask for the same as this one; None where it does something else, too."""
    last = _asked(root.detail, scene.state.now_s)
    if last is None:
        return None
    state = scene.state
    asking = {
        r: op
        for r in state.ranks()
        if (op := _asked(state.detail(r), state.now_s)) is not None and not state.status(r).gone
    }
    ranks = tuple(sorted(r for r, op in asking.items() if op.detail == last.detail))
    nobody = all(state.status(r).gone or r in asking or scene.graph.waits.get(r) for r in state.ranks())
    waited_s = scene.longest_s(scene.graph.waiting_for(ranks))
    stuck = nobody and waited_s >= state.hang_after_s
    waiting = tuple(r for r in scene.graph.waiting_for(ranks) if r not in ranks)
    key = f"the key {last.detail}" if last.detail else "a key"
    text = f"{words.ranks_text(ranks)} {words.verb(ranks, 'asks', 'ask')} the store again and again for {key}"
    text += f" in {words.place_text(last.site)}" if last.site is not None else ""
    text += ", and no rank is left that could change it" if nobody else ""
    text += f"; {words.wait_text(waiting)} for {words.verb(ranks, 'it', 'them')}" if waiting else ""
    told = tuple(
        Evidence(f"its last {POLLS} operations are calls of the store for {key}, all from one line", "probe", r,
                 scene.step((r,))) for r in ranks[:4]
    )  # fmt: skip
    why = f"{key} of the store never gets the value that is asked for: whoever is to set it has not, or not back"
    cause = Cause("polled", why, 0.85 if nobody else 0.6, Basis.OBSERVATION, (*told, *waiting_text(scene, root)))
    return Finding(
        "hang.store_wait", Severity.CRITICAL if stuck else Severity.WARNING, ranks,
        words.shortened(f"{text}{scene.lasting(waited_s)}."), (cause,), waiting_ranks=waiting, op_name=last.name,
        names=(last.detail,) if last.detail else (), step=scene.step(ranks), since_s=state.now_s - waited_s,
        locations=tuple(place for r in ranks for place in _places(state.detail(r), asking[r])),
        key=f"polled:{last.detail}",
    )  # fmt: skip


def _asked(detail: Detail, now_s: float) -> Operation | None:
    """The newest of its main thread's calls of the store, where it has made no others lately, and these all alike."""
    mine = [op for op in detail.history if op.thread == detail.pid]
    tail = mine[-POLLS:]
    if len(tail) < POLLS or not all(op.name.startswith("STORE_") for op in tail):
        return None
    last = tail[-1]
    if now_s - last.entered_s > RECENT_S:
        return None  # it has gone on to something else
    return last if all((op.name, op.site, op.detail) == (last.name, last.site, last.detail) for op in tail) else None


def _places(detail: Detail, last: Operation) -> tuple[Location, ...]:
    """The line that asks first, then where it was seen."""
    seen = places.outside(detail)
    return places.starting(detail.rank, last.site, seen) if last.site is not None else seen
