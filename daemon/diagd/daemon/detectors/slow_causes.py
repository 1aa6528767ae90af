"""Why ranks are slow, from what their steps take longer is made of."""

from statistics import median

from diagd.daemon.detectors import contention, looks, partners, slowness, volume
from diagd.daemon.detectors.finding import Basis
from diagd.daemon.detectors.lateness import Lateness
from diagd.daemon.detectors.observed import Observed, observed
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.slowness import HOST_PART, Excess

PART = 0.5  # what makes up so much of the excess explains it
# Of the excess, from which on it may all be for want of CPUs: a main thread that waits in an operation hardly runs, so
# its own delay is the least of what other threads of its process have.
CONTENDED_PART = 0.2
OWN_PART = 0.25  # of the excess in the ranks' own phases: the whole machine is slower, not what lies between ranks
INSIDE_PART = 0.6  # of the excess of each rank, in operations: nobody works so much longer that the others wait for it
MET_PART = 0.5  # of the looks at each rank, in operations: fewer may have been so before
QUIET_SHARE = 0.1  # ranks arrive together where nobody costs more
_MET = "all are in it most of the time"


def of_one(scene: Scene, rank: int, others: list[int], step_s: float, excess: Excess) -> Observed:
    """Why a rank is slower than others: by its totals, and where they say no more than that, by looks at it."""
    by_totals = Observed(*_of_rank(excess), 0.85, Basis.OBSERVATION, ())
    if by_totals.kind != "slow.straggler":
        return by_totals
    return observed(scene.state, rank, others, step_s, excess) or by_totals


def _of_rank(excess: Excess) -> tuple[str, str, str]:
    """Kind, key of the fix, and words, from what the rank's excess is made of."""
    if excess.part("data") >= PART:
        return "slow.data", "data", "its input comes late"
    # Who computes more also waits more for a CPU that others use as well: there its work has grown.
    computes = excess.cpu_s >= excess.host.get(slowness.DELAY, 0.0) and excess.cpu_part >= HOST_PART
    if (host := slowness.host_cause(excess)) and not (computes and host[0] in contention.KEYS):
        return contention.kind(host[0]), *host
    phase = excess.largest_phase()
    if phase and excess.part(phase) >= PART:
        where = f"in phase {phase}" if phase in ("data", "optimizer") else "between the optimizer's step and backward"
        return "slow.straggler", "slow_rank", f"its own work {where} takes longer"
    return "slow.straggler", "slow_rank", "its own work takes longer"


def may_be_backward(excess: Excess) -> bool:
    """Whether its backward pass may be what is slow: not where another phase makes up for most of it."""
    return excess.part(excess.largest_phase()) < PART


def _are_met_together(scene: Scene, excess: dict[int, Excess], *, grown: bool) -> bool:
    """Whether looks met all ranks in operations for most of what their steps take longer.

    So also those that a wrapper issues in phases of the ranks' own. Where messages have `grown`, what the main threads
    compute more is copying them; else it may be work.
    """
    met = {r: share for r in excess if (share := looks.in_meetings(scene.state, r)) is not None}
    worked = 0.0 if grown else median(e.cpu_part for e in excess.values())
    if len(met) < 2 or min(met.values()) < MET_PART or worked >= OWN_PART:
        return False
    return all(s * excess[r].step_s - excess[r].met_s >= INSIDE_PART * excess[r].total_s for r, s in met.items())


def of_all(
    scene: Scene,
    excess: dict[int, Excess],
    found: list[Lateness],
    paused_s: dict[int, float],
    grown: volume.Grown | None = None,
) -> tuple[str, str, str] | None:
    """The same for all ranks together; None where they have more to compute, which is no fault.

    Args:
        paused_s: By rank, seconds for each step that lay beside the steps.
        grown: What they pass to each other, where that has grown.
    """
    if median(e.part("data") for e in excess.values()) >= PART:
        return "slow.data", "data", "the input comes late"
    met = _are_met_together(scene, excess, grown=grown is not None)
    more = met and grown is not None  # who waits for longer messages leaves its CPU to others, and waits for it again
    host = [cause for r, e in excess.items() if (cause := slowness.host_cause(e, paused_s[r])) is not None]
    if 2 * len(host) > len(excess) and not (more and host[0][0] in contention.KEYS):
        return contention.kind(host[0][0]), *host[0]
    in_python = median(e.part("collective") for e in excess.values())
    # In a backward pass that waits for gloo the thread uses no CPU; with a device it never does, so that tells nothing.
    on_cpu = all(scene.state.detail(r).backend.startswith("gloo") for r in excess)
    in_backward = median(e.part("backward") - e.cpu_part for e in excess.values()) if on_cpu else 0.0
    share = max((late.share(r) for late in found for r in late.cost_s), default=0.0)
    # A root that sends to each of the others comes out of it last, and so to what follows, with no work of its own.
    inside = min(e.part("collective") for e in excess.values()) >= INSIDE_PART and share < PART
    together = (bool(found) and share < QUIET_SHARE) or inside
    if partners.send_lately(scene.state):
        return None  # time in operations is also time in which a stage waits for another's work
    delay = median(e.host.get(slowness.DELAY, 0.0) / e.total_s for e in excess.values())
    if on_cpu and delay >= CONTENDED_PART and not more:
        return None  # gloo's own threads need CPUs of the same host
    passed = f", {grown.said}" if grown is not None else ""
    if met:
        return "slow.collective", "communication", f"the communication itself is slow: {_MET}{passed}"
    own = [e.own_part for e in excess.values()]
    if median(own) >= OWN_PART or max(own) >= PART:
        return None  # of one alone, too: the others wait for it, as for an evaluation on rank 0
    if together and max(in_python, in_backward) >= PART:
        return "slow.collective", "communication", f"the communication itself is slow: they arrive together{passed}"
    return None
