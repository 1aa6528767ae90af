"""Which ended rank ended of itself, and which only because another did."""

from dataclasses import dataclass

from diagd.daemon.detectors.backend import rests_in_communication
from diagd.daemon.detectors.fallen import BACKEND_WORDS
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Detail, Exit

# A launcher ends the ranks that are left with these, up to its shutdown timeout (torchrun: 30 s) after the first death.
TEARDOWN_SIGNALS = frozenset({"SIGTERM", "SIGKILL", "SIGINT"})
TEARDOWN_S = 40.0
TEARDOWN_ORDER_S = 0.05  # exits are seen no finer than this
STOPPING_S = 120.0  # a job that was told to end and goes on for so long has taken it as no more than news
TOGETHER_S = (
    0.03  # one signal to all ranks; a launcher that follows up on a single death takes longer (torchrun: 0.1 s)
)
CRASHES = frozenset({"SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"})
MISSED_S = 1.5  # an operation that all have entered ends sooner
CODE_S = 3.0  # by then most processes have come out of the interpreter's shutdown, and their exit code is known
UNPLACED_S = 10.0  # of one whose place is not known yet, it is not known whether the one that left was in it too
INTERRUPTED_S = 5.0  # a person's interrupt has come to the other ranks by then
REFUSED = ("connectFullMesh failed", "onnection refused")  # of gloo, as a group is made
BY_A_PERSON = frozenset({"KeyboardInterrupt", "SystemExit"})


@dataclass(frozen=True, slots=True)
class Death:
    """One rank's end."""

    rank: int
    detail: Detail
    exit: Exit
    kind: str  # exit.killed, exit.error, exit.early

    @property
    def began_s(self) -> float:
        """When the fault struck: an exception or a call of exit comes before the process is gone."""
        ending = self.detail.ending
        noted = ending is not None and ending.what in ("exception", "exit") and ending.at_s > 0
        return min(self.exit.at_s, ending.at_s) if ending is not None and noted else self.exit.at_s

    @property
    def after_all(self) -> bool:
        """A signal ended it when its own code was done: it had left its script in good order."""
        ending = self.detail.ending
        left = ending is not None and ending.what in ("exit", "shutdown") and ending.code in (None, 0)
        return self.exit.signal in CRASHES and left

    @property
    def signature(self) -> tuple[object, ...]:
        """The same for ranks that failed in the same way at the same place."""
        ending = self.detail.ending
        place = next((f for f in ending.frames if f.user), None) if ending is not None else None
        kind = ending.type if ending is not None else ""
        return (
            self.kind,
            kind,
            self.exit.signal,
            self.exit.code,
            place.file if place else "",
            place.line if place else 0,
        )


def first_deaths(scene: Scene) -> list[Death]:
    """The deaths that explain the rest: the first, and those that failed in the same way at the same place."""
    own = sorted(_own_deaths(scene), key=lambda d: d.began_s)
    state = scene.state
    if state.ended_s is not None and state.exit_code == 0:
        own = [death for death in own if _broke(scene, death.rank)]
    if not own:
        return []
    first = own[0]
    alike = [d for d in own if d.signature == first.signature]
    if first.kind == "exit.killed":
        return [d for d in alike if d.exit.at_s - first.exit.at_s <= TEARDOWN_ORDER_S]
    return alike


def _broke(scene: Scene, rank: int) -> bool:
    """Whether an operation of others broke because the rank was gone: their script caught that and called it an end."""
    waits = (scene.graph.for_whom.get((other, rank)) for other in scene.graph.waiting_for((rank,)))
    return any(wait is not None and wait.op.failed and wait.kind in ("collective", "p2p") for wait in waits)


def _own_deaths(scene: Scene) -> list[Death]:
    found = []
    for rank, detail in sorted(scene.state.processes().items()):
        if detail.attempt < scene.state.attempt:
            continue  # the launcher has started the job again since
        if detail.exit is None and detail.in_shutdown_s is not None and scene.state.ended_s is None:
            found += _leaving(scene, rank, detail)
        elif detail.exit is not None and (kind := _kind(scene, detail, detail.exit)):
            found.append(Death(rank, detail, detail.exit, kind))
        elif detail.exit is not None and _had_left(scene, detail):
            found.append(Death(rank, detail, Exit(detail.in_shutdown_s or 0.0, 0, seen_by="probe"), "exit.early"))
    return found


def _had_left(scene: Scene, detail: Detail) -> bool:
    """Whether its script was over, and others fell for that, before the launcher ended it for their sake."""
    end, ending = detail.exit, detail.ending
    if end is None or detail.in_shutdown_s is None or not _torn_down(scene, detail.rank, end) or _wanted(scene, end):
        return False
    failed = ending is not None and (ending.what == "exception" or ending.code not in (None, 0))
    return not failed and not scene.graph.waits.get(detail.rank) and _broke(scene, detail.rank)


def _leaving(scene: Scene, rank: int, detail: Detail) -> list[Death]:
    """In interpreter shutdown while others wait for it."""
    if scene.graph.waits.get(rank) or _interrupted(scene, detail):
        return []  # on its way out of a failed wait, or a person ended the job
    left_s = detail.in_shutdown_s or 0.0
    others = scene.graph.waiting_for((rank,))
    ending = detail.ending
    told = ending is not None and ending.what != "shutdown"  # that it failed, or the code it gave
    if not others or not _missed(scene, others) or scene.state.now_s - left_s < (MISSED_S if told else CODE_S):
        return []
    failed = ending is not None and (ending.what == "exception" or ending.code not in (None, 0))
    return [Death(rank, detail, Exit(left_s, None if failed else 0), "exit.error" if failed else "exit.early")]


def _kind(scene: Scene, detail: Detail, end: Exit) -> str:
    """The kind of a rank's own death; empty for one that is normal, wanted or a consequence."""
    if _wanted(scene, end) or _torn_down(scene, detail.rank, end):
        return ""
    if _interrupted(scene, detail):
        return ""
    dependents = scene.graph.waiting_for((detail.rank,))
    if was_interrupted(detail):
        return "exit.error"  # what it was at is known, by whom it was interrupted is not
    if end.signal in ("SIGTERM", "SIGINT") and any(w.op.failed for w in scene.graph.waits.get(detail.rank, ())):
        return ""  # its wait had broken already when the launcher ended it
    if end.signal:
        inside = scene.graph.waits.get(detail.rank) or rests_in_communication(detail) or _was_in_backward(scene, detail)
        aborted_in_wait = end.signal == "SIGABRT" and inside
        return "" if aborted_in_wait else "exit.killed"
    if end.code is None and not any(w.op.failed for w in scene.graph.waits.get(detail.rank, ())):
        return _unseen(detail, bool(dependents))
    if was_refused(detail):
        return "exit.error"
    if scene.graph.waits.get(detail.rank):
        return ""  # it fell out of a wait
    if end.code == 0:
        return "exit.early" if dependents and _hurts(scene, dependents) else ""
    return "exit.error"


def _was_in_backward(scene: Scene, detail: Detail) -> bool:
    """Whether its backward pass had issued an operation that others then fell out of: its last stack is older."""
    phases = scene.state.phases
    in_pass = detail.rank < len(phases) and phases[detail.rank] in ("backward", "collective")
    return in_pass and any(
        _fell_from_network(other) for rank, other in scene.state.processes().items() if rank != detail.rank
    )


def _fell_from_network(detail: Detail) -> bool:
    ending = detail.ending
    return ending is not None and ending.raised and any(words in ending.message for words in BACKEND_WORDS)


def _unseen(detail: Detail, missed: bool) -> str:
    """The exit status was not seen: what the process itself noted must do."""
    ending = detail.ending
    if ending is not None and ending.what == "exception":
        return "exit.error"
    if detail.in_shutdown_s is not None or (ending is not None and ending.what in ("exit", "shutdown")):
        failed = ending is not None and ending.code not in (None, 0)
        return "exit.error" if failed else "exit.early" if missed else ""
    return "exit.killed" if missed else ""


def _hurts(scene: Scene, dependents: tuple[int, ...]) -> bool:
    return scene.failed(dependents) or _missed(scene, dependents)


def _missed(scene: Scene, dependents: tuple[int, ...]) -> bool:
    """Whether they wait for longer than an operation lasts that the one which left has entered too."""
    waits = [w for r in dependents for w in scene.graph.waits.get(r, ())[:1]]
    unplaced = all(w.kind == "collective" and w.op.seq <= 0 for w in waits)
    return scene.longest_s(dependents) >= (UNPLACED_S if unplaced else MISSED_S)


def _wanted(scene: Scene, end: Exit) -> bool:
    stopping = scene.state.stopping_s
    return stopping is not None and stopping - 0.1 <= end.at_s <= stopping + STOPPING_S


def _torn_down(scene: Scene, rank: int, end: Exit) -> bool:
    """Ended by the launcher after another rank's death."""
    if end.signal not in TEARDOWN_SIGNALS:
        return False
    before = [
        d.exit.at_s
        for r, d in scene.state.processes().items()
        if r != rank
        and d.exit is not None
        and d.exit.code != 0
        and (d.exit.signal != "SIGTERM" or end.at_s - d.exit.at_s > TOGETHER_S)
    ]
    earlier = [t for t in before if 0 <= end.at_s - t + TEARDOWN_ORDER_S <= TEARDOWN_S]
    if end.signal == "SIGKILL":  # a kill of its own can come first by a hair
        earlier = [t for t in earlier if end.at_s - t > 1.0]
    if earlier:
        return True
    # SIGTERM on all of them at once: someone ended the job.
    together = [
        r for r, d in scene.state.processes().items()
        if d.exit is not None and d.exit.signal == end.signal and abs(d.exit.at_s - end.at_s) < TOGETHER_S
    ]  # fmt: skip
    return end.signal != "SIGKILL" and len(together) == scene.state.world_size and scene.state.world_size > 1


def was_refused(detail: Detail) -> bool:
    """Whether an address that a rank had given did not listen when a group was made: no wait, and nobody is late."""
    ending = detail.ending
    return ending is not None and ending.raised and all(words in ending.message for words in REFUSED)


def was_interrupted(detail: Detail) -> bool:
    """Whether it ended by KeyboardInterrupt or the like."""
    ending = detail.ending
    return ending is not None and ending.raised and ending.type in BY_A_PERSON


def _interrupted(scene: Scene, detail: Detail) -> bool:
    """Whether a person ended the job, as far as can be told: that interrupts all of its ranks, not one of them."""
    if not was_interrupted(detail):
        return False
    others = [other for rank, other in scene.state.processes().items() if rank != detail.rank]
    if not others or any(was_interrupted(o) or (o.exit is not None and o.exit.signal == "SIGINT") for o in others):
        return True
    torn_down = any(other.exit is not None and other.exit.signal == "SIGTERM" for other in others)
    waited_s = scene.longest_s(scene.graph.waiting_for((detail.rank,)))
    return not torn_down and waited_s < INTERRUPTED_S
