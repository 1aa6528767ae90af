"""A thread of a rank that ended in an exception shortly before the rank came to a stand.

Python prints such an exception and goes on; a queue that the thread filled, or a group in which it communicated, is
from then on nobody's.
"""

from dataclasses import replace

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Evidence, Finding, Location
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail, Ending, Frame, Thread

# What it had filled before may last for so long: the batches of a queue, or the time until its next turn.
LATELY_S = 120.0


def fallen(scene: Scene, rank: int, since_s: float) -> Ending | None:
    """The thread, where its end may be why the rank stands since then."""
    ended = scene.state.detail(rank).thread_ended
    return ended if ended is not None and ended.at_s >= since_s - LATELY_S else None


def keeping(detail: Detail) -> Thread | None:
    """The thread of the script's own for whose end the interpreter's shutdown waits; None where it waits for none.

    None, too, where there are several: it waits for none that is a daemon, and a stack does not tell which these are.
    """
    stack = detail.stack
    main = stack.main if stack is not None else None
    if stack is None or main is None or not any(one.function == "_shutdown" for one in main.frames):
        return None
    own = [thread for thread in stack.threads if not thread.main and thread.user_frames]
    return own[0] if len(own) == 1 else None


def place_of(ended: Ending) -> Frame | None:
    """Where the script's own code raised it."""
    return next((frame for frame in ended.frames if frame.user), None)


def said(ended: Ending) -> str:
    """In words, without the place."""
    message = words.shortened(ended.message.partition("\n")[0], 120)
    error = f"{ended.type}: {message}" if message else ended.type
    return f"its thread {ended.thread!r} has ended with {error}" if ended.thread else f"a thread ended with {error}"


def evidence(scene: Scene, rank: int, ended: Ending) -> Evidence:
    """The same with its place and when it was."""
    where = words.place_text(place_of(ended))
    ago = words.seconds_text(max(scene.state.now_s - ended.at_s, 0.0))
    return Evidence(f"{said(ended)}{f' in {where}' if where else ''}, {ago} ago", "probe", rank)


def with_fallen(scene: Scene, finding: Finding) -> Finding:
    """A hang with the threads of its culprits that had ended: their places come last, they may have no part in it."""
    if not finding.kind.startswith("hang.") or finding.causes[0].key == "thread":
        return finding
    found = {rank: ended for rank in finding.ranks if (ended := fallen(scene, rank, finding.since_s)) is not None}
    if not found:
        return finding
    cause = finding.causes[0]
    told = replace(cause, evidence=(*cause.evidence, *(evidence(scene, r, one) for r, one in found.items())))
    further = {rank: Location(rank, frame) for rank, one in found.items() if (frame := place_of(one)) is not None}
    spare = {rank: [one for one in finding.locations if one.rank == rank][places.MOST - 1 :] for rank in further}
    kept = (one for one in finding.locations if one not in spare.get(one.rank, ()))
    return replace(finding, causes=(told, *finding.causes[1:]), locations=(*kept, *further.values()))
