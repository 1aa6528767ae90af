"""Whether a rank shows any sign of life, and which.

A rank that only waits inside a collective shows none and needs none; this is asked of ranks that others wait for.
"""

from dataclasses import dataclass

from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Status

GIL_STALE_S = 2.0  # the box's thread beats 4 times a second and needs the GIL to do so
SAME_STACK_LOOKS = 3
WRITES_EVERY_S = 10.0  # what has written none for so long does not go on writing them
# What only writes lines (a loop that tries again, say) is given so many times the patience with one that shows no sign.
WRITES_PATIENCE = 3
SEEN_FOR_S = 5.0  # what shows no sign of life for so long would have shown one, also to a watch that has just begun


@dataclass(frozen=True, slots=True)
class Life:
    """Signs of life of one rank."""

    idle_s: float  # since the last sign of any kind
    holds_gil: bool  # some thread keeps the interpreter from running anything else
    busy: bool  # it uses the CPU
    signs: tuple[str, ...]  # what moved lately, most telling first
    same_stack_looks: int  # looks in a row at which the main thread's frames were the same; 0 where never looked at
    writes_s: float = 0.0  # for how long it has done nothing but write lines; 0 where it writes none, or does more
    settled: bool = True  # it was watched for long enough that a sign would have shown
    known: bool = True  # False: only dumps are there, which say nothing of life


_SIGNS = (
    ("program_moved_s", "it runs operations"),
    ("frames_moved_s", "its stack changes"),
    ("io_moved_s", "it reads or writes"),
    ("children_moved_s", "its child processes work"),
    ("memory_moved_s", "its memory changes"),
    ("main_cpu_moved_s", "it computes"),
    ("other_cpu_moved_s", "its other threads compute"),
)
_WRITES = ("it writes lines",)
_PROGRAM = "program_moved_s"
_BESIDE = ("children_moved_s", "memory_moved_s")  # go on beside a stopped process, as who traces it reads it
_CPU = ("main_cpu_moved_s", "other_cpu_moved_s")


def life_of(state: JobState, rank: int, recent_s: float = 3.0) -> Life:
    """Look at one rank's signs; `recent_s` is what counts as lately."""
    if state.from_dumps:
        return Life(0.0, False, False, (), 0, known=False)
    c, now = state.columns, float(state.columns.seen_s[rank])  # what did not come since says nothing
    alive = Status(int(c.status[rank])) in (Status.RUNNING, Status.BLOCKED)
    beat = float(c.heartbeat_s[rank])
    holds_gil = alive and beat > 0 and float(c.seen_s[rank]) - beat > GIL_STALE_S
    # While one C call holds the GIL, CPU shows only that the call goes on, not that it gets anywhere.
    stopped = Status(int(c.status[rank])) is Status.STOPPED
    silent = _CPU if holds_gil else _BESIDE if stopped else ()
    counted = [(n, words) for n, words in _SIGNS if n not in silent]
    first_s = float(c.first_s[rank])
    moved = {name: float(getattr(c, name)[rank]) for name, _ in _SIGNS}
    moved = {name: at if at > first_s or name == _PROGRAM else 0.0 for name, at in moved.items()}
    last = max(first_s if now - first_s < SEEN_FOR_S else 0.0, *(moved[name] for name, _ in counted))
    said_s = 0.0 if stopped or holds_gil else float(c.said_s[rank])
    writes_s = now - last if said_s > last + recent_s and now - said_s < WRITES_EVERY_S else 0.0
    return Life(
        idle_s=max(now - max(last, min(said_s, last + (WRITES_PATIENCE - 1) * state.hang_after_s)), 0.0),
        writes_s=writes_s,
        holds_gil=holds_gil,
        busy=now - moved["main_cpu_moved_s"] < recent_s,
        signs=(*(words for name, words in counted if now - moved[name] < recent_s), *(_WRITES if writes_s else ())),
        same_stack_looks=_same_looks(state, rank),
        settled=now - first_s >= SEEN_FOR_S,
    )


def _same_looks(state: JobState, rank: int) -> int:
    looks = state.detail(rank).looks
    count = 0
    for _, digest in reversed(looks):
        if digest != looks[-1][1]:
            break
        count += 1
    return count


def usual_wait_s(state: JobState) -> float:
    """How long a healthy wait can be in this job: the median time of a step; 0 before two steps were seen."""
    known = state.columns.step_interval_s[state.columns.known]
    steps = sorted(float(s) for s in known if s > 0)
    return steps[len(steps) // 2] if steps else 0.0
