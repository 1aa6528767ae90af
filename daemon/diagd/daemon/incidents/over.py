"""When an incident is over: where the ranks went on without it, and not because they end or nobody sees them."""

from diagd.daemon.incidents.healed import is_healed
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.incidents.levelled import levelled
from diagd.daemon.state.columns import Columns
from diagd.daemon.state.job import JobState

CALM_S = 2.0  # what is not found for so long is over
GONE_S = 20.0  # likewise of what training computes, whose evidence comes and goes with its samples
ANEW_S = 20.0  # a watcher that was started again has its evidence of a wait after so long,
ANEW_GOES_ON_S = 60.0  # and that of what the job goes on with
YOUNG_S = 6.0  # twice the stretch that a pace is measured over: a slow beginning of an epoch shows for so long
LOOK_S = 1.0  # what a rank does is seen so long after it at most
_PROGRAM = ("program_moved_s",)
_SIGNS = (
    *_PROGRAM, "frames_moved_s", "io_moved_s", "children_moved_s", "memory_moved_s", "main_cpu_moved_s",
    "other_cpu_moved_s",
)  # fmt: skip


def is_over(
    incident: Incident, state: JobState, last_found_s: float, *, retold: bool = False, missed_s: float | None = None
) -> bool:
    """Whether the fault is over that was found last at `last_found_s`; `retold`: as another that stands now.

    `missed_s` is when it was looked for in vain first since then.

    A job that has ended well has come out of each of its waits; a straggler or what training computes wrongly may have
    lasted to the last step.
    """
    if last_found_s < state.now_s and (is_healed(incident, state) or levelled(incident, state) is not None):
        return True  # which was seen, whatever becomes of the job
    if state.ended_s is not None and incident.kind.startswith("exit.") and last_found_s >= state.now_s:
        return False
    if state.ended_s is not None:
        return state.exit_code == 0 and (not incident.goes_on or _went_by(incident, state, missed_s))
    if incident.kind.startswith("exit."):
        return state.attempt > incident.attempt
    involved = (*incident.ranks, *incident.waiting_ranks)
    if state.stopping_s is not None or any(_leaves(state, rank) for rank in involved):
        return state.attempt > incident.attempt
    if incident.kind.startswith("slow.") and incident.goes_on:
        return _last_step_s(incident, state) - last_found_s > _patience_s(incident)
    if incident.kind.startswith(("hang.", "slow.")) and not retold and not _moved(incident, state, last_found_s):
        return False
    return state.now_s - last_found_s > _patience_s(incident)


def _went_by(incident: Incident, state: JobState, missed_s: float | None) -> bool:
    """Whether ranks that were slow made their last steps without that, as far as is known."""
    if not incident.kind.startswith("slow."):
        return False
    last_step_s = _last_step_s(incident, state)
    return last_step_s - incident.opened_s < YOUNG_S or (missed_s is not None and last_step_s > missed_s)


def _last_step_s(incident: Incident, state: JobState) -> float:
    ranks = _seen(state, (*incident.ranks, *incident.waiting_ranks))
    return min(max((_went_on_s(state.columns, rank) for rank in ranks), default=0.0), state.now_s)


def _patience_s(incident: Incident) -> float:
    if incident.restored:
        return ANEW_GOES_ON_S if incident.goes_on else ANEW_S
    samples = incident.goes_on and not incident.kind.startswith("slow.")
    return GONE_S if samples else CALM_S


def _went_on_s(columns: Columns, rank: int) -> float:
    """When it made its last step; of a rank that makes none, ran its last operation."""
    return float(columns.step_s[rank] if columns.step[rank] > 0 else columns.program_moved_s[rank])


def _leaves(state: JobState, rank: int) -> bool:
    """Whether the rank has ended, or is on its way out: its exception, or Ctrl-C, ends a wait and mends nothing."""
    detail = state.details.get(rank)
    ending = detail is not None and (detail.ending is not None or detail.in_shutdown_s is not None)
    return ending or state.status(rank).gone


def _moved(incident: Incident, state: JobState, last_found_s: float) -> bool:
    """Whether a rank that waited has gone on, or its culprit shows signs of life, since it was found last."""
    since_s = last_found_s - LOOK_S
    if any(_moved_s(state.columns, rank, _PROGRAM) >= since_s for rank in _seen(state, incident.waiting_ranks)):
        return True
    culprits = _seen(state, incident.ranks)
    return not culprits or any(_moved_s(state.columns, rank, _SIGNS) >= since_s for rank in culprits)


def _seen(state: JobState, ranks: tuple[int, ...]) -> list[int]:
    return [rank for rank in ranks if rank < len(state.columns.known) and state.columns.known[rank]]


def _moved_s(columns: Columns, rank: int, signs: tuple[str, ...]) -> float:
    """When it moved last; what was seen at its first look tells nothing."""
    moved = (float(getattr(columns, name)[rank]) for name in signs)
    return max((at_s for at_s in moved if at_s > columns.first_s[rank]), default=0.0)
