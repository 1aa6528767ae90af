"""Which ranks deserve a closer look now: stacks, the flight recorder's entries, the history of operations."""

from dataclasses import dataclass

from diagd.daemon.detectors import looks
from diagd.daemon.detectors.life import usual_wait_s
from diagd.daemon.detectors.slowness import own_s, pace_of, suspects
from diagd.daemon.state.job import JobState

QUIET_S = 1.2  # nothing was done in the program for so long
QUIET_STEPS = 2.0  # or for so many usual steps
QUIET_FIRST_STEP_S = 5.0
BEGUN = 16  # operations: a job that has run so many is past its start, also one that makes no steps
MOST_RANKS = 64  # looked at in one go
ARRIVALS_S = 60.0  # so often it is looked who arrives late, where nothing points to it,
ARRIVALS_PART = 0.5  # and ever more seldom: after so much of the time that the job has run,
ARRIVALS_SLOW_S = 2.0  # and where something does
# The flight recorder of 2,000 entries takes a tenth of a second of a CPU, in the rank.
RECORDER_SLOW_S = 5.0
RECORDER_APART_S = 20.0  # so often where ranks hold different values
SAMPLES = 40  # of a slow rank's stack tell where it is
MOST_SAMPLED = 4
MOST_COMPARED = 2  # ranks that are not slow, to hold what the slow ones do against
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
        return _of_pace(state, alive)
    # Ranks that wait in an operation say where; those that do not are the riddle.
    suspects = sorted(alive, key=lambda r: (state.columns.wait_s[r] > 0, r))[:MOST_RANKS] if quiet else []
    lacking = [r for r in suspects if _lacks_entries(state, r)]
    absent = sorted(state.candidates) if quiet else []  # have not come where the others wait: where are they?
    return Attention(
        stacks=(*suspects, *absent)[:MOST_RANKS],
        recorder=tuple(lacking),
        history=tuple(r for r in ranks if r in suspects or r in gone)[:MOST_RANKS],
    )


def _of_pace(state: JobState, alive: list[int]) -> Attention:
    """The job runs: seldom compare what its ranks do; where it may be slow, look when they meet and where they are."""
    slow, apart = suspects(state), _is_apart(state)
    runs_s = state.now_s - _begun_s(state)
    calm_s = max(ARRIVALS_S, ARRIVALS_PART * (state.now_s - state.started_s))
    calm_s = RECORDER_APART_S if apart else calm_s
    every_s = {r: (RECORDER_SLOW_S if _issues_unseen(state, r) else ARRIVALS_SLOW_S) if slow else calm_s for r in alive}
    arrivals = [r for r in alive if r in state.paces and state.now_s - state.paces[r].arrivals_read_s >= every_s[r]]
    meet = tuple(arrivals[:MOST_RANKS]) if slow or apart or runs_s >= ARRIVALS_S else ()
    compare = {r for r in alive if _not_compared(state, r)}
    return Attention(
        stacks=tuple(r for r in (*slow[:MOST_SAMPLED], *_compared(state, slow)) if _is_sampled_too_little(state, r)),
        recorder=tuple(r for r in meet if _issues_unseen(state, r)),
        history=tuple(sorted(compare.union(meet)))[:MOST_RANKS],
    )


def _is_apart(state: JobState) -> bool:
    """Whether ranks were found to hold different values: what they have issued may tell why."""
    return state.looked is not None and any(finding.kind.startswith("divergence.") for finding in state.looked[1])


def _issues_unseen(state: JobState, rank: int) -> bool:
    """Whether it issues operations from C++, as DDP does: of these the flight recorder alone has the times."""
    issued = sum(max(group.enqueued, 0) for group in state.detail(rank).groups)
    return issued > int(state.columns.operations[rank])


def _begun_s(state: JobState) -> float:
    """When the first of the ranks was seen to make steps."""
    return min((pace.samples[0].at_s for pace in state.paces.values() if pace.samples), default=state.now_s)


def _compared(state: JobState, slow: tuple[int, ...]) -> list[int]:
    """Where some ranks are slow, a few of the others: those with the least work of their own."""
    steps = pace_of(state).now if slow else {}
    return sorted(steps.keys() - set(slow), key=lambda r: (own_s(steps[r]), r))[:MOST_COMPARED]


def _is_sampled_too_little(state: JobState, rank: int) -> bool:
    return sum(look.times for look in looks.recent(state, rank) if look.role == "rank") < SAMPLES


def _not_compared(state: JobState, rank: int) -> bool:
    """Whether its operations were not read for so long; not before the first steps are done."""
    c = state.columns
    begun = c.step[rank] >= 1 and c.operations[rank] > 0
    return bool(begun) and state.now_s - float(c.history_s[rank]) >= ROUTINE_S


def _quiet(state: JobState, rank: int) -> bool:
    c = state.columns
    begun = c.step[rank] >= 1 or c.operations[rank] >= BEGUN
    patience_s = max(QUIET_S, QUIET_STEPS * usual_wait_s(state)) if begun else QUIET_FIRST_STEP_S
    # Up to when it was seen last: a job that is in order is not looked at each second.
    return float(c.seen_s[rank]) - float(c.program_moved_s[rank]) >= patience_s


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
