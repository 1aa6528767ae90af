"""Ranks that send to and receive from each other: whose own work takes longer than it did, and who waits because of it.

In a pipeline the stages differ by design, and who waits for a slow stage comes late to the next collective. So each
rank's own work, its steps without what held it in operations, is weighed against what the rank itself has shown; and
others must be seen to wait for it more than they did.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from diagd.daemon.detectors.finding import Evidence
from diagd.daemon.detectors.slowness import Current, is_slowed
from diagd.daemon.state.job import JobState
from diagd.daemon.state.pace import Partner, Rates

SENT_S = 30.0  # ranks that have not sent or received for so long do not wait for each other there
KNOWN_PART = 0.9  # of the ranks
GROWN_PART = 0.5  # of what a step takes longer, to be its reason
WAITED_PART = 0.3  # of it, for a rank that waits for the reason, if not all the time
COSTS_SHARE = 0.15  # of a step
LEAST_S = 0.005  # shorter is the scheduler's
NEAR = 0.5  # ranks that have grown at least so much of what the worst one has are slow with it
ALIKE = 0.33  # others that grow by so much of the worst one's growth, each against its own work, grow with it
STEADY_S = 4.0
STEADY_STEPS = 16
STRETCH_S = 0.4
STRETCH_STEPS = 2
LEAST_STRETCHES = 4
STEADY_PART = 0.75  # of the stretches: one long pause makes one of them long


@dataclass(frozen=True, slots=True)
class Growth:
    """What a rank's step takes longer than it has shown, in seconds."""

    step_s: float
    own_s: float
    held_s: dict[Partner, float]

    def held_by(self, ranks: Collection[int]) -> float:
        """What it waits more for these: in their sends and receives, or where one cannot tell for whom."""
        return sum(max(s, 0.0) for (_, rank), s in self.held_s.items() if rank in ranks or rank < 0)


@dataclass(frozen=True, slots=True)
class Slower:
    """Ranks whose own work takes longer, and those that wait."""

    ranks: tuple[int, ...]  # the worst first
    waiting: tuple[int, ...]
    own_s: float  # what a step of the worst one takes longer of its own
    evidence: tuple[Evidence, ...]


def send_lately(state: JobState) -> bool:
    """Whether ranks wait for each other in send and recv, too."""
    since_s = state.now_s - SENT_S
    return any(pace.p2p_s >= since_s or pace.partners(since_s) for pace in state.paces.values())


def waits_known(state: JobState, steps: Current) -> bool:
    """Whether it is known of all for how long they were held; on a device their threads go on meanwhile."""
    on_cpu = all(state.detail(r).backend.startswith("gloo") for r in steps.now)
    return on_cpu and all(rates.held and not rates.lost for rates in steps.now.values())


class Parts:
    """Which ranks are joined by sends and receives, be it through others: the stages of one pipeline."""

    def __init__(self, state: JobState) -> None:
        since_s = state.now_s - SENT_S
        self._joined_to: dict[int, int] = {}
        self._all = False  # to more partners than are told apart
        for rank, pace in state.paces.items():
            for name, partner in pace.partners(since_s):
                self._all = self._all or (name == "SEND" and partner < 0)
                if partner >= 0:
                    self._joined_to[self._part(rank)] = self._part(partner)

    def _part(self, rank: int) -> int:
        """One rank for all of a part."""
        above = self._joined_to.get(rank, rank)
        while above != self._joined_to.get(above, above):
            above = self._joined_to[above]
        self._joined_to[rank] = above
        return above

    def stages(self, ranks: Iterable[int]) -> bool:
        """Whether some of these are of one pipeline: they differ by design, and none is the others' measure."""
        members = list(ranks)
        return self._all or len({self._part(r) for r in members}) < len(members)


def slower(state: JobState, steps: Current, parts: Parts) -> Slower | None:
    """The ranks whose own work explains that the steps take longer; None where that is not so, or not known."""
    known = [r for r, usual in steps.usual.items() if usual.held and not usual.lost]
    if len(known) < 2 or len(known) < KNOWN_PART * len(steps.now):
        return None
    replicated = _replicated(state, parts)
    grown = {r: _growth(r in replicated, steps.now[r], steps.usual[r]) for r in known}
    ranks = _reason(grown, steps)
    if not ranks or not all(_steady(state, r, steps.usual[r], grown[r]) for r in ranks[:1]):
        return None
    worst = grown[ranks[0]]
    others = [r for r in sorted(grown) if r not in ranks]
    waiting = tuple(r for r in others if sum(grown[r].held_s.values()) >= WAITED_PART * worst.step_s)
    if not any(grown[r].held_by(ranks) >= WAITED_PART * worst.step_s for r in waiting):
        return None
    return Slower(ranks, waiting, worst.own_s, tuple(_evidence(grown, ranks, waiting)))


def _growth(replicated: bool, now: Rates, usual: Rates) -> Growth:
    held = {partner: s - usual.held.get(partner, 0.0) for partner, s in now.held.items()}
    own_s = now.own_s - usual.own_s
    if replicated:  # its backward pass may wait for them, which only its CPU tells from work
        idle_s = now.phases.get("backward", 0.0) - usual.phases.get("backward", 0.0) - max(now.cpu_s - usual.cpu_s, 0.0)
        own_s -= max(idle_s, 0.0)
    return Growth(now.step_s - usual.step_s, own_s, held)


def _replicated(state: JobState, parts: Parts) -> set[int]:
    """The ranks that are in a group, in use, of ranks of other pipelines."""
    used = {g.ranks for detail in state.details.values() for g in detail.groups if len(g.ranks) > 1 and g.enqueued > 0}
    return {r for ranks in used if not parts.stages(ranks) for r in ranks}


def _reason(grown: dict[int, Growth], steps: Current) -> tuple[int, ...]:
    worst = max(grown, key=lambda r: grown[r].own_s)
    own_s = grown[worst].own_s
    enough_s = max(GROWN_PART * grown[worst].step_s, COSTS_SHARE * steps.now[worst].step_s, LEAST_S)
    if own_s < enough_s or not is_slowed(steps.now[worst], steps.usual[worst]):
        return ()
    if _all_grow(grown, steps, worst):
        return ()
    ranks = sorted((r for r in grown if grown[r].own_s >= NEAR * own_s), key=lambda r: -grown[r].own_s)
    return tuple(ranks) if 2 * len(ranks) <= len(grown) else ()  # else there is more to do for most of them


def _all_grow(grown: dict[int, Growth], steps: Current, worst: int) -> bool:
    """Whether the others have more to do in a like measure: with longer batches the largest stage grows most."""
    relative = {r: growth.own_s / max(steps.usual[r].own_s, LEAST_S) for r, growth in grown.items()}
    return median(s for r, s in relative.items() if r != worst) >= ALIKE * relative[worst]


def _steady(state: JobState, rank: int, usual: Rates, growth: Growth) -> bool:
    """Whether its work is longer most of the time."""
    span_s = max(STEADY_S, STEADY_STEPS * (usual.step_s + growth.step_s))
    pieces = state.paces[rank].stretches(state.now_s - span_s, STRETCH_S, STRETCH_STEPS)
    long = sum(piece.own_s - usual.own_s >= GROWN_PART * growth.own_s for piece in pieces)
    return len(pieces) >= LEAST_STRETCHES and long >= STEADY_PART * len(pieces)


def _evidence(grown: dict[int, Growth], ranks: tuple[int, ...], waiting: tuple[int, ...]) -> Iterator[Evidence]:
    """The waits, those for a culprit first."""
    for rank in sorted(waiting, key=lambda r: -grown[r].held_by(ranks))[:3]:
        (name, partner), more_s = max(grown[rank].held_s.items(), key=lambda item: item[1])
        where = f"{name} {'to' if name == 'SEND' else 'from'} rank {partner}" if partner >= 0 else name or "collectives"
        yield Evidence(f"held {1000 * more_s:.0f} ms a step longer than before in {where}", "probe", rank)
