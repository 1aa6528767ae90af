"""What the time that a rank's steps take too long is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from diagd.daemon.detectors import contention, pauses
from diagd.daemon.detectors.finding import Evidence
from diagd.daemon.state.job import JobState
from diagd.daemon.state.pace import PAUSES, Rates

CURRENT_S = 3.0
CURRENT_STEPS = 8
SLOWED_RATIO = 1.3  # a step, against what the job has shown
SLOWED_BY_S = 0.005
SKEWED_PART = 0.15  # of a step, that a rank spends on its own more than the others do
HOST_PART = 0.4
FAULT_S = 0.0001  # a page from a fast disk; a slow one takes fifty times as long, so this is the least it costs
DELAY = "run_delay_s"
MOST_DELAY = 4.0  # for each second of CPU: five threads to a CPU; longer waits are hardly for its own work's sake
# Phases that are a rank's own doing; in the others it may wait for ranks.
OWN = ("data", "forward", "optimizer", "other", "init")
_HOST_WORDS = {
    "throttled_s": ("throttled", "its cgroup's CPU quota holds it back"),
    "garbage_s": ("garbage", "Python's garbage collector holds it up"),
    "major_faults": ("paging", "it waits for pages from disk or swap"),
    "disk_wait_s": ("storage", "it waits for storage"),
    DELAY: (contention.KEY, "it waits for a CPU"),
}


@dataclass(frozen=True, slots=True)
class Current:
    """The ranks' steps as they are now."""

    now: dict[int, Rates]
    usual: dict[int, Rates]  # what each has shown it can do


def pace_of(state: JobState) -> Current:
    """The pace of all ranks that make steps."""
    now, usual = {}, {}
    for rank, pace in state.paces.items():
        rates = pace.window(CURRENT_S, CURRENT_STEPS)
        if rates is None or state.status(rank).gone or state.now_s - pace.read_s > CURRENT_S:
            continue
        now[rank], best = rates, pace.baseline()
        if best is not None and best.until_s < rates.since_s:
            usual[rank] = best
    return Current(now, usual)


def pace_over(state: JobState, steps: Current, seconds: float) -> Current:
    """The same ranks' steps over a longer stretch, as far as it was seen."""
    return replace(
        steps, now={r: state.paces[r].window(seconds, CURRENT_STEPS) or rates for r, rates in steps.now.items()}
    )


def is_slowed(now: Rates, usual: Rates) -> bool:
    """Whether a rank's steps take longer than it has shown."""
    return now.step_s >= SLOWED_RATIO * usual.step_s and now.step_s - usual.step_s >= SLOWED_BY_S


def suspects(state: JobState) -> tuple[int, ...]:
    """Ranks that do more of their own in a step than the others; where none does, those that were faster before.

    The ones with most of their own work first. Before the latter those that take longer over what is beside the steps.
    """
    steps = pace_of(state)
    if not steps.now:
        return ()
    own = {r: own_s(rates) for r, rates in steps.now.items()}
    usual_s, step_s = median(own.values()), median(rates.step_s for rates in steps.now.values())
    skewed = [r for r, s in own.items() if s - min(usual_s, _least(own, r)) >= SKEWED_PART * step_s]
    slowed = [r for r, usual in steps.usual.items() if is_slowed(steps.now[r], usual)]
    return tuple(sorted(skewed or pauses.longer(state) or slowed, key=lambda r: (-own.get(r, 0.0), r)))


def own_s(rates: Rates) -> float:
    """Seconds a step in phases in which it waits for no other rank."""
    return sum(rates.phases.get(name, 0.0) for name in OWN)


def _least(own: dict[int, float], rank: int) -> float:
    """Of two ranks the median lies between them: there the other one is the measure."""
    return min(s for r, s in own.items() if r != rank) if len(own) == 2 else own[rank]


@dataclass(frozen=True, slots=True)
class Excess:
    """Seconds a step above the others, or above what was shown before."""

    total_s: float
    phases: dict[str, float]
    cpu_s: float
    host: dict[str, float]
    expected_delay_s: float = 0.0  # what it waits more for a CPU because it computes more, or as all ranks do
    crowd: dict[str, float] = field(default_factory=dict)  # CPUs in use by others than it, now
    crowd_more: dict[str, float] = field(default_factory=dict)  # of that, above the others, or above before
    step_s: float = 0.0  # as it is now
    met_s: float = 0.0  # of it, spent in operations by the others, or before

    def part(self, phase: str) -> float:
        """The part of the excess that lies in a phase."""
        return self.phases.get(phase, 0.0) / self.total_s

    @property
    def cpu_part(self) -> float:
        """The part of it in which the main thread computed."""
        return self.cpu_s / self.total_s

    @property
    def own_part(self) -> float:
        """The part of it in phases in which a rank waits for no other."""
        return sum(self.part(name) for name in OWN)

    def largest_phase(self) -> str:
        """The phase of the rank's own doing with the most of it; empty where none has any."""
        own = {name: s for name, s in self.phases.items() if name in OWN and s > 0}
        return max(own, key=lambda name: own[name], default="")


def against(
    now: Rates, others: Sequence[Rates], total_s: float, beside: Sequence[tuple[Rates, Rates]] = ()
) -> Excess:  # fmt: skip
    """A rank's steps against the median of others.

    Args:
        now: The rank's.
        others: Other ranks', or its own from before.
        total_s: What has to be explained.
        beside: Where `others` are from before: those of other ranks, now and before. A machine that has become crowded
            holds them up too, and does not set this rank apart.
    """

    def over(mine: dict[str, float], theirs: list[dict[str, float]]) -> dict[str, float]:
        return {name: s - median(t.get(name, 0.0) for t in theirs) for name, s in mine.items()}

    if not others:
        return Excess(max(total_s, 1e-9), {}, 0.0, {})
    crowds = [other.crowd for other in others]
    return Excess(
        max(total_s, 1e-9), over(now.phases, [o.phases for o in others]),
        now.cpu_s - median(o.cpu_s for o in others), over(now.host, [o.host for o in others]),
        _expected_delay_s(now, others, beside), now.crowd, over(now.crowd, crowds) if all(crowds) else {},
        now.step_s, median(o.phases.get("collective", 0.0) for o in others),
    )  # fmt: skip


def _expected_delay_s(now: Rates, others: Sequence[Rates], beside: Sequence[tuple[Rates, Rates]]) -> float:
    rate = max(_delay_rate(others), _delay_rate([one for one, _ in beside]))
    of_all = [one.host.get(DELAY, 0.0) - usual.host.get(DELAY, 0.0) for one, usual in beside]
    return rate * max(now.cpu_s - median(o.cpu_s for o in others), 0.0) + max(median(of_all or [0.0]), 0.0)


def _delay_rate(rates: Sequence[Rates]) -> float:
    """Seconds without a CPU for each second with one."""
    cpu_s = sum(one.cpu_s for one in rates)
    return min(sum(one.host.get(DELAY, 0.0) for one in rates) / cpu_s, MOST_DELAY) if cpu_s > 0 else 0.0


def host_cause(excess: Excess, paused_s: float = 0.0) -> tuple[str, str] | None:
    """What outside of the rank's own work explains it: the key of its fix, and words.

    What the kernel counts goes on in pauses. Where `total_s` is of steps alone, it may all have come in the `paused_s`
    for each step that lay between them.
    """
    held = {name: excess.host.get(name, 0.0) * (FAULT_S if name == "major_faults" else 1.0) for name in _HOST_WORDS}
    held[DELAY] -= excess.expected_delay_s
    enough = [name for name, seconds in held.items() if seconds - paused_s >= HOST_PART * excess.total_s]
    if DELAY in enough and held[DELAY] > held["garbage_s"]:
        # Without a CPU the collector takes longer, too; not all of the delay can have come while it ran.
        enough = [name for name in enough if name != "garbage_s"]
    said = _HOST_WORDS[enough[0]] if enough else None
    if said is not None and said[0] == contention.KEY:
        return contention.by_whom(excess.crowd, excess.crowd_more)
    return said


def evidence(rank: int, now: Rates, excess: Excess, usual: Rates | None = None) -> tuple[Evidence, ...]:
    """The figures, largest first."""
    than = "than before" if usual is not None else "than the others"
    found = [Evidence(f"{1000 * now.step_s:.0f} ms a step over {now.steps} steps", "probe", rank)]
    phases = {name: s for name, s in excess.phases.items() if usual is None or name not in PAUSES}
    for name, s in sorted(phases.items(), key=lambda item: -item[1])[:2]:
        if s >= 0.1 * excess.total_s:
            found.append(Evidence(f"{1000 * s:.0f} ms a step more {than} in phase {name}", "probe", rank))
    if excess.cpu_part >= 0.1:
        found.append(Evidence(f"{1000 * excess.cpu_s:.0f} ms a step more {than} of CPU", "kernel", rank))
    if (faults := excess.host.get("major_faults", 0.0)) * FAULT_S >= 0.1 * excess.total_s:
        found.append(Evidence(f"{faults:.0f} pages a step more {than} had to come from disk or swap", "kernel", rank))
    for name, s in excess.host.items():
        if name != "major_faults" and s >= 0.1 * excess.total_s:
            what = name.removesuffix("_s").replace("_", " ")
            found.append(Evidence(f"{what}: {1000 * s:.0f} ms a step more {than}", "kernel", rank))
            if name == DELAY and excess.crowd:
                found.append(Evidence(contention.said(excess.crowd), "kernel", rank))
    return tuple(found)
