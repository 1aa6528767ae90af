"""What all hang and exit rules look at: the state, the ledger and the wait-for graph, built once a look."""

from dataclasses import dataclass

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.graph import Graph, graph_of
from diagd.daemon.detectors.ledger import Ledger, ledger_of
from diagd.daemon.detectors.life import usual_wait_s
from diagd.daemon.detectors.position import Wait
from diagd.daemon.state.columns import NEVER
from diagd.daemon.state.job import JobState

PROVEN_S = 1.5  # two ranks have stood at a proven contradiction for so long: no race of two counters explains it
LATE_S = 4.0  # shorter waits are not spoken of
LATE_STEPS = 3.0  # nor those shorter than so many usual steps of this job
NEARLY_TWO = 1.8  # steps are not of one length
FIRST_STEP_LATE_S = 30.0  # compilation, autotuning and loading come before the second step


@dataclass(frozen=True, slots=True)
class Scene:
    """One look at a job."""

    state: JobState
    ledger: Ledger
    graph: Graph
    late_s: float

    def age_s(self, wait: Wait) -> float:
        """How long the wait lasts."""
        return max(self.state.now_s - wait.since_s, 0.0)

    def lasting(self, seconds: float) -> str:
        """ " for 12 s"; empty for dumps, of which it is not known when they were taken."""
        return "" if self.state.from_dumps else f" for {words.seconds_text(seconds)}"

    def longest_s(self, ranks: tuple[int, ...]) -> float:
        """The longest wait of these ranks; 0 where none waits."""
        return max((self.age_s(w) for r in ranks for w in self.graph.waits.get(r, ())[:1]), default=0.0)

    def times_out_s(self, ranks: tuple[int, ...]) -> float | None:
        """When the backend gives up the first of these ranks' waits, as far as the flight recorder tells."""
        found = []
        for wait in (w for r in ranks for w in self.graph.waits.get(r, ())[:1]):
            entry = self.ledger.recorder.get((wait.op.group, wait.op.seq), {}).get(wait.rank)
            if entry is not None and entry.timeout_s > 0:
                found.append(wait.since_s + entry.timeout_s)
        return min(found, default=None)

    def failed(self, ranks: tuple[int, ...]) -> bool:
        """Whether some of these ranks' waits ended in an exception or death: the fault has had its effect."""
        return any(w.failed for r in ranks for w in self.graph.waits.get(r, ()))

    def broken_for_s(self, ranks: tuple[int, ...]) -> float:
        """Since when the first of these ranks' waits is broken; 0 where none is."""
        broken = []
        for wait in (w for r in ranks for w in self.graph.waits.get(r, ()) if w.failed):
            detail = self.state.detail(wait.rank)
            ends = (wait.op.returned_s, detail.ending and detail.ending.at_s, detail.exit and detail.exit.at_s)
            broken += [min(known)] if (known := [at_s for at_s in ends if at_s]) else []
        return max(self.state.now_s - min(broken), 0.0) if broken else 0.0

    def last_step(self, rank: int) -> places.LastStep:
        """When the rank began, roughly, and ended the last step that it completed."""
        c = self.state.columns
        if rank >= len(c.known) or not c.known[rank] or c.step_s[rank] == NEVER or c.step_interval_s[rank] <= 0:
            return places.NO_STEP
        ended_s = float(c.step_s[rank])
        return places.LastStep(ended_s - NEARLY_TWO * float(c.step_interval_s[rank]), ended_s)

    def step(self, ranks: tuple[int, ...]) -> int | None:
        """The step at which the fault was met: the least of the ranks' steps; None where none is known."""
        c = self.state.columns
        steps = [int(c.step[r]) for r in ranks if r < len(c.known) and c.known[r] and c.step[r] >= 0]
        return min(steps) if steps else None


def scene_of(state: JobState) -> Scene:
    """Put together what the rules look at."""
    ledger = ledger_of(state)
    late_s = max(LATE_S, LATE_STEPS * usual_wait_s(state))
    return Scene(state, ledger, graph_of(state, ledger), late_s)
