"""Which ranks deserve a closer look now: stacks, the flight recorder's entries, the history of operations."""

from dataclasses import dataclass

from diagd.daemon.detectors.life import usual_wait_s
from diagd.daemon.state.job import JobState

QUIET_S = 1.2  # nothing was done in the program for so long
QUIET_STEPS = 2.0  # or for so many usual steps
QUIET_FIRST_STEP_S = 5.0
MOST_RANKS = 64  # looked at in one go
ROUTINE_S = 10.0  # so often the last operations of all are compared, hang or not


@dataclass(frozen=True, slots=True)
class Attention:
    """Ranks to be looked at, for each kind of look."""

    stacks: tuple[int, ...] = ()
    recorder: tuple[int, ...] = ()
    history: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.stacks or self.recorder or self.history)


def attention(state: JobState) -> Attention:
    """Ask for evidence where some rank stands still or has ended; nothing while the job runs as it did."""
    ranks = state.ranks()
    gone = [r for r in ranks if state.status(r).gone]
    alive = [r for r in ranks if not state.status(r).gone]
    quiet = [r for r in alive if _quiet(state, r)]
    if not quiet and not (gone and alive):
        return Attention(history=tuple(r for r in alive if _not_compared(state, r))[:MOST_RANKS])
    # Ranks that wait in an operation say where; those that do not are the riddle.
    suspects = sorted(alive, key=lambda r: (state.columns.wait_s[r] > 0, r))[:MOST_RANKS] if quiet else []
    lacking = [r for r in suspects if _lacks_entries(state, r)]
    return Attention(
        stacks=tuple(suspects) if quiet else (),
        recorder=tuple(lacking),
        history=tuple(r for r in ranks if r in suspects or r in gone)[:MOST_RANKS],
    )


def _not_compared(state: JobState, rank: int) -> bool:
    """Whether its operations were not read for so long; not before the first steps are done."""
    c = state.columns
    begun = c.step[rank] >= 1 and c.operations[rank] > 0
    return bool(begun) and state.now_s - float(c.history_s[rank]) >= ROUTINE_S


def _quiet(state: JobState, rank: int) -> bool:
    c = state.columns
    patience_s = max(QUIET_S, QUIET_STEPS * usual_wait_s(state)) if c.step[rank] >= 1 else QUIET_FIRST_STEP_S
    return state.now_s - float(c.program_moved_s[rank]) >= patience_s


def _lacks_entries(state: JobState, rank: int) -> bool:
    """The recorder is read once for each standstill: reading costs the rank CPU, which would look like life."""
    entries = state.detail(rank).recorder
    moved_s = float(state.columns.program_moved_s[rank])
    counters = {g.name: g.enqueued for g in state.detail(rank).groups}
    if not entries:
        return any(n > 0 for n in counters.values())
    newest = max(op.entered_s for op in entries)
    behind = any(counters.get(op.group, 0) > op.seq for op in {e.group: e for e in entries}.values())
    return behind or (newest < moved_s - 60.0 and state.now_s - moved_s < 3.0)
