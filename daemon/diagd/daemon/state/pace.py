"""What a rank's steps take and are made of, and when it came to each operation: what is slow is read from this."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Self

from diagd.daemon.state.model import CALL, Detail, Facts, Frame, Operation, Stack
from diagd.daemon.state.rounds import Rounds

PREFIX = "phase_s|"
HELD = "held_s|"
PAUSES = ("eval", "checkpoint")  # phases that are no part of a step
HOST = ("garbage_s", "run_delay_s", "throttled_s", "major_faults", "disk_wait_s")  # of Facts.extra
CROWD = ("cpu_others_s", "cpu_workers_s", "cpu_helpers_s", "cpu_mains_s")  # likewise: who uses the rank's CPUs
WINDOW_STEPS = 5  # fewer steps tell more of single steps than of the rank
WINDOW_S = 0.8
WARM_STEPS = 2  # the first ones compile and allocate
PREFETCHED_STEPS = 16  # a loader's workers have their first batches ready before they are asked
KEPT = 240  # samples, two a second
KEPT_ARRIVALS = 1024
KEPT_FRAMES = 256
MOST_THREADS = 3  # of the user's own, beside the main one
KEPT_PASSED = 256
PAUSED_LOOKS, NEARLY_ALL = 12, 0.9
BEST_OF = 6  # from so many windows on, one lucky window is no baseline

Partner = tuple[str, int]  # SEND or RECV and its partner, -1 any; ("", -1) for all other operations together


class Seen(NamedTuple):
    """Where a thread was."""

    at_s: float
    role: str  # of its process: rank, worker, child; thread: another one of the rank's than the main one
    frames: tuple[Frame, ...]
    times: int  # how often, of one sampling
    call: str = ""  # what the kernel says it waited in, on the file in `note`; of a sample: what its line calls
    note: str = ""


class Sample(NamedTuple):
    """A rank's totals at one moment."""

    at_s: float
    step: int
    phases: dict[str, float]  # seconds in each phase
    cpu_s: float  # of the main thread
    host: dict[str, float]
    held: dict[Partner, float]  # of a rank that sends or receives
    lost: float  # operations of which it is not known for how long they held it
    crowd: dict[str, float]  # empty where it is not known


@dataclass(frozen=True, slots=True)
class Rates:
    """What a step takes and is made of, on average over the steps between two samples; seconds for each step."""

    since_s: float
    until_s: float
    steps: int
    step_s: float  # without pauses
    phases: dict[str, float]
    cpu_s: float
    host: dict[str, float]
    held: dict[Partner, float] = field(default_factory=dict)  # empty where it neither sends nor receives
    lost: float = 0.0
    crowd: dict[str, float] = field(default_factory=dict)  # CPUs that others than its main thread use of its own

    @property
    def paused_s(self) -> float:
        """Seconds for each step that were spent beside the steps."""
        return sum(self.phases.get(name, 0.0) for name in PAUSES)

    @property
    def own_s(self) -> float:
        """What of a step it was not held in operations; of a rank that sends or receives, of which that is known."""
        return self.step_s - sum(self.held.values())

    @classmethod
    def between(cls, first: Sample, last: Sample) -> Self:
        """The rates from one sample to a later one, at least one step later."""
        steps = last.step - first.step
        phases = {name: (total - first.phases.get(name, 0.0)) / steps for name, total in last.phases.items()}
        return cls(
            first.at_s, last.at_s, steps,
            sum(s for name, s in phases.items() if name not in PAUSES), phases,
            (last.cpu_s - first.cpu_s) / steps,
            {name: (total - first.host.get(name, 0.0)) / steps for name, total in last.host.items()},
            {partner: (total - first.held.get(partner, 0.0)) / steps for partner, total in last.held.items()},
            (last.lost - first.lost) / steps,
            {n: (total - first.crowd[n]) / (last.at_s - first.at_s) for n, total in last.crowd.items() if first.crowd},
        )  # fmt: skip


@dataclass(slots=True)
class Pace:
    """One rank's recent past."""

    pid: int = 0
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=KEPT))
    # Those of them that are the first after a step: between two of these lie whole steps, and nothing of one that has
    # not ended, or of what comes after the last.
    _whole: deque[Sample] = field(default_factory=lambda: deque(maxlen=KEPT))
    arrivals: OrderedDict[tuple[str, int, str], float] = field(default_factory=OrderedDict)  # (group, place, source)
    # By group and place: when it was entered, and of how many elements; of collectives, as the flight recorder tells.
    sizes: OrderedDict[tuple[str, int], tuple[float, int]] = field(default_factory=OrderedDict)
    # What it has passed to and from one other rank, with when it was entered; only what is over.
    passed: OrderedDict[tuple[float, str, str, int], Operation] = field(default_factory=OrderedDict)
    frames: deque[Seen] = field(default_factory=lambda: deque(maxlen=KEPT_FRAMES))
    arrivals_read_s: float = 0.0  # from where most of them come: the flight recorder, once that was read
    arrived_s: float = 0.0  # the newest of what that has told: it was read a while before it came here
    from_recorder: bool = False
    rounds: Rounds = field(default_factory=Rounds)  # of looks at its stacks
    p2p_s: float = 0.0  # when it last was seen to send or receive
    _best: list[Rates] = field(default_factory=list)
    _windows: int = 0
    _first: Rates | None = None  # the fastest of the first windows

    def note(self, fact: Facts, now_s: float) -> None:
        """Take a rank's numbers, where they say what its steps are made of."""
        phases = {name.removeprefix(PREFIX): s for name, s in fact.extra.items() if name.startswith(PREFIX)}
        if not phases or fact.step < WARM_STEPS:
            return
        host = {name: fact.extra.get(name, 0.0) for name in HOST}
        lost = fact.extra.get("operations_lost", 0.0)
        crowd = {name: fact.extra[name] for name in CROWD} if all(name in fact.extra for name in CROWD) else {}
        sample = Sample(now_s, fact.step, phases, fact.main_cpu_s, host, _held(fact), lost, crowd)
        is_whole = not self.samples or fact.step > self.samples[-1].step
        self.samples.append(sample)
        if not is_whole:
            return
        self._whole.append(sample)
        window = self.window(WINDOW_S, WINDOW_STEPS)
        if window is not None and not window.paused_s:
            self.rounds.note_pace(window.step_s)
            self._windows += 1
            early = self._windows <= BEST_OF and fact.step - window.steps >= PREFETCHED_STEPS
            if early and (self._first is None or window.step_s < self._first.step_s):
                self._first = window
            self._best = sorted([*self._best, window], key=lambda rates: rates.step_s)[:3]

    def note_detail(self, detail: Detail, now_s: float) -> None:
        """Take what a closer look has seen: when it came to which operation, and where its threads were."""
        for source, operations in (("probe", detail.history), ("flight recorder", detail.recorder)):
            self._note_arrivals(source, operations)
        self._note_passed(detail)
        self.from_recorder |= bool(detail.recorder)
        if detail.recorder or (detail.history and not self.from_recorder):
            self.arrivals_read_s = now_s
            told = [op.entered_s for op in detail.recorder or detail.history if op.seq > 0 and not op.p2p]
            self.arrived_s = max(told, default=self.arrived_s)
        newest = self.frames[-1].at_s if self.frames else 0.0
        fresh = [stack for stack in detail.stacks if stack.taken_s > newest and (stack.threads or stack.role == CALL)]
        if fresh:
            self.rounds.note_look(min(stack.taken_s for stack in fresh))
        self.frames.extend(seen for stack in fresh for seen in (_seen(stack), *_threads(stack)))

    def _note_arrivals(self, source: str, operations: Iterable[Operation]) -> None:
        for op in operations:
            if op.seq > 0 and not op.p2p:
                self.arrivals[op.group, op.seq, source] = op.entered_s
            elif op.p2p:
                self.p2p_s = max(self.p2p_s, op.entered_s)
            if source != "probe" and op.seq > 0 and op.numel >= 0 and not op.p2p:
                self.sizes[op.group, op.seq] = op.entered_s, op.numel
        while len(self.arrivals) > KEPT_ARRIVALS:
            self.arrivals.popitem(last=False)
        while len(self.sizes) > KEPT_ARRIVALS:
            self.sizes.popitem(last=False)

    def _note_passed(self, detail: Detail) -> None:
        pairs = {group.name for group in detail.groups if len(group.ranks) == 2}
        for op in detail.history:
            if op.returned_s and (op.p2p or (op.group in pairs and op.seq > 0)):
                self.passed[op.entered_s, op.name, op.group, op.peer] = op
        while len(self.passed) > KEPT_PASSED:
            self.passed.popitem(last=False)

    def window(self, seconds: float, steps: int) -> Rates | None:
        """The rates of the last `seconds` at least, and `steps` at least; None where so much was not seen.

        Until the last step that is over: what comes after it may be the end of the training.
        """
        if not self._whole:
            return None
        last = self._whole[-1]
        for first in reversed(self._whole):
            if last.at_s - first.at_s >= seconds and last.step - first.step >= steps:
                return Rates.between(first, last)
        return None

    def stretches(self, since_s: float, seconds: float, steps: int) -> list[Rates]:
        """The rates since then in one piece after the other, each of so many seconds and steps at least."""
        found: list[Rates] = []
        first: Sample | None = None
        for sample in self.samples:
            if first is None or sample.at_s < since_s:
                first = sample
            elif sample.at_s - first.at_s >= seconds and sample.step - first.step >= steps:
                found.append(Rates.between(first, sample))
                first = sample
        return found

    def partners(self, since_s: float) -> set[Partner]:
        """With whom it has sent and received since then, as far as samples reach."""
        if not (self.samples and self.samples[-1].held):
            return set()
        first, last = self._at(since_s), self.samples[-1]
        return {partner for partner, s in last.held.items() if partner[0] and s > first.held.get(partner, 0.0)}

    def held_s(self, since_s: float) -> float:
        """Seconds that it was held in sends and receives since then, as far as samples reach."""
        if not (self.samples and self.samples[-1].held):
            return 0.0
        first, last = self._at(since_s), self.samples[-1]
        return sum(total - first.held.get(partner, 0.0) for partner, total in last.held.items() if partner[0])

    @property
    def read_s(self) -> float:
        """When its numbers were read last."""
        return self.samples[-1].at_s if self.samples else 0.0

    def _at(self, at_s: float) -> Sample:
        return next((s for s in reversed(self.samples) if s.at_s <= at_s), self.samples[0])

    def spent_s(self, phases: Iterable[str], since_s: float) -> float:
        """Seconds that the rank has spent in these phases since then, as far as samples reach."""
        if not self.samples:
            return 0.0
        first = self._at(since_s)
        return sum(self.samples[-1].phases.get(name, 0.0) - first.phases.get(name, 0.0) for name in phases)

    def steps_over(self, since_s: float, until_s: float) -> int:
        """Steps that it has made in that time, as far as samples reach."""
        return self._at(until_s).step - self._at(since_s).step if self.samples else 0

    def always_pauses(self, phase: str, since_s: float) -> bool:
        """Whether it was in that phase in nearly all of the looks between which it has made steps."""
        mine = [sample for sample in self._whole if sample.at_s >= since_s]
        longer = [b.phases.get(phase, 0.0) > a.phases.get(phase, 0.0) for a, b in pairwise(mine)]
        return len(longer) >= PAUSED_LOOKS and sum(longer) >= NEARLY_ALL * len(longer)

    def baseline(self) -> Rates | None:
        """What the rank has shown it can do: the fastest of its first windows, or the second fastest of all."""
        if not self._best:
            return None
        best = self._best[1] if self._windows >= BEST_OF else self._best[0]
        return self._first if self._first is not None and self._first.step_s < best.step_s else best


def _seen(stack: Stack) -> Seen:
    role = "rank" if stack.role == "sample" else stack.role
    frames = stack.main.frames if stack.main is not None else ()
    call = stack.syscall if stack.role in (CALL, "sample") else ""
    return Seen(stack.taken_s, role, frames, max(stack.times, 1), call, stack.note)


def _threads(stack: Stack) -> list[Seen]:
    """The rank's other threads that are in the user's own code: one may fetch what the main one waits for."""
    others = [t for t in stack.threads if t is not stack.main and t.user_frames] if stack.role == "rank" else []
    return [Seen(stack.taken_s, "thread", thread.frames, 1) for thread in others[:MOST_THREADS]]


def _held(fact: Facts) -> dict[Partner, float]:
    """What each partner has held it for, from numbers such as `held_s|RECV|3`."""
    found: dict[Partner, float] = {}
    for key, seconds in fact.extra.items():
        name, _, rank = key.removeprefix(HELD).partition("|")
        if key.startswith(HELD) and rank.lstrip("-").isdecimal():
            found[name, int(rank)] = seconds
    return found
