"""A training in pipelines, written down: who works, sends, receives and meets in which order, and what waits follow."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.detectors.training import HOST, PHASES, Own, Training

from diagd.daemon.state.model import Group, Operation

BATCHES = 4
Link = Callable[[int, int], float]  # sender, receiver -> seconds that a message takes once both are there


def stage(rank: int, step: int) -> dict[str, float]:
    """An ordinary step: 4 ms forward and 6 ms backward for each of four batches, 2 ms of optimizer."""
    return {"forward": 0.016, "backward": 0.024, "optimizer": 0.002, "cpu": 0.042}


def quick(sender: int, receiver: int) -> float:
    """A link as it should be."""
    return 0.0005


class Act(NamedTuple):
    """One thing that a rank does: work in a phase, a send, a receive, or a meeting of a group."""

    what: str  # a phase, SEND, RECV, MEET
    seconds: float = 0.0
    partner: int = -1
    group: str = ""


class Pipelines(Training):
    """`world` ranks in pipelines of `depth` stages; ranks of the same stage may meet, or all of them, once a step.

    `in_backward`: they meet inside the backward pass, unseen, as DDP's C++ makes them.
    """

    def __init__(
        self, world: int, depth: int = 0, *, replicas: bool = False, norm: bool = False, in_backward: bool = False
    ) -> None:
        super().__init__(world)
        self.depth = depth or world
        self._norm, self._replicas, self._in_backward = norm, replicas, in_backward
        self._placed: dict[str, int] = defaultdict(int)
        self._at = [self.now_s] * world  # where each rank is: in a pipeline they do not begin a step together
        self.link: Link = quick
        self.larger: set[tuple[int, int]] = set()  # pairs whose messages are so much larger
        self._name()

    def _name(self) -> None:
        everyone = tuple(range(len(self.ranks)))
        alike = [tuple(r for r in everyone if r % self.depth == s) for s in range(self.depth)] if self._replicas else []
        found: list[tuple[str, tuple[int, ...], bool]]
        found = [("0", everyone, self._norm), *((f"s{s}", ranks, True) for s, ranks in enumerate(alike))]
        self.groups = tuple(Group(name, ranks, enqueued=9 if used else 0) for name, ranks, used in found)

    def linked(self, link: Link) -> "Pipelines":
        """From now on messages take so long."""
        self.link = link
        return self

    def on(self, nodes: str) -> "Pipelines":
        """On which host each rank is, a letter for each."""
        self.nodes = tuple(nodes)
        return self

    def _train_step(self, own: Own, collective_s: float, buckets: int) -> None:
        works = [own(rank, self.step) for rank in range(len(self.ranks))]
        todo = [list(reversed(self._acts(rank, work))) for rank, work in enumerate(works)]
        while any(todo):
            before = sum(map(len, todo))
            for rank in range(len(self.ranks)):
                self._go_on(rank, todo, self._at, collective_s)
            assert sum(map(len, todo)) < before, "the acts do not fit together"
        for placed, work in zip(self.ranks, works, strict=True):
            for name in (*HOST, "cpu"):
                placed.totals[name] += work.get(name, 0.0)
        self.now_s = max(self._at)
        self.step += 1

    def _acts(self, rank: int, work: dict[str, float]) -> list[Act]:
        before = rank - 1 if rank % self.depth else -1
        after = rank + 1 if (rank + 1) % self.depth else -1
        made: list[Act] = []
        for phase, source, aim in (("forward", before, after), ("backward", after, before)):
            for _ in range(BATCHES):
                made += [Act("RECV", partner=source)] if source >= 0 else []
                made += [Act(phase, work.get(phase, 0.0) / BATCHES)]
                made += [Act("SEND", partner=aim)] if aim >= 0 else []
        made += [Act("MEET", group=g.name) for g in self.groups if g.enqueued and rank in g.ranks]
        rest = [name for name in PHASES if name in work and name not in ("forward", "backward")]
        return made + [Act(name, work[name]) for name in rest]

    def _go_on(self, rank: int, todo: Sequence[list[Act]], at: list[float], collective_s: float) -> None:
        while todo[rank] and todo[rank][-1].what in PHASES:
            act = todo[rank].pop()
            self.ranks[rank].totals[act.what] += act.seconds
            at[rank] += act.seconds
        if not todo[rank]:
            return
        act = todo[rank][-1]
        if act.what == "MEET":
            self._meet(next(g for g in self.groups if g.name == act.group), todo, at, collective_s)
        else:
            self._pass(rank, act, todo, at)

    def _meet(self, group: Group, todo: Sequence[list[Act]], at: list[float], collective_s: float) -> None:
        if any(not todo[r] or todo[r][-1] != Act("MEET", group=group.name) for r in group.ranks):
            return
        self._placed[group.name] += 1
        until_s = max(at[r] for r in group.ranks) + collective_s
        for r in group.ranks:
            todo[r].pop()
            if self._in_backward:
                self.ranks[r].totals["backward"] += until_s - at[r]
                at[r] = until_s
                continue
            op = Operation("ALLREDUCE", group.name, self._placed[group.name], entered_s=at[r], returned_s=until_s,
                           numel=1, source="flight recorder")  # fmt: skip
            self.ranks[r].entered = [*self.ranks[r].entered[-255:], op]
            self._hold(r, "held_s||-1", until_s, at)

    def _pass(self, rank: int, act: Act, todo: Sequence[list[Act]], at: list[float]) -> None:
        other = "RECV" if act.what == "SEND" else "SEND"
        theirs = todo[act.partner][-1] if todo[act.partner] else Act("")
        if theirs.what != other or theirs.partner != rank:
            return
        pair = (rank, act.partner) if act.what == "SEND" else (act.partner, rank)
        until_s = max(at[rank], at[act.partner]) + self.link(*pair)
        for who, what, partner in ((rank, act.what, act.partner), (act.partner, other, rank)):
            todo[who].pop()
            numel = 4096 * (40 if self.larger & {(rank, act.partner), (act.partner, rank)} else 1)
            op = Operation(what, "0", peer=partner, numel=numel, dtype="float32", entered_s=at[who], returned_s=until_s,
                           held_s=until_s - at[who])  # fmt: skip
            self.ranks[who].passed = [*self.ranks[who].passed[-63:], op]
            self._hold(who, f"held_s|{what}|{partner}", until_s, at)

    def _hold(self, rank: int, key: str, until_s: float, at: list[float]) -> None:
        placed, held_s = self.ranks[rank], until_s - at[rank]
        placed.held[key] = placed.held.get(key, 0.0) + held_s
        placed.totals["collective"] += held_s
        at[rank] = until_s


def slow_between(*pairs: tuple[int, int], seconds: float = 0.02) -> Link:
    """As usual, but between these ranks, in both directions."""
    return lambda a, b: seconds if (a, b) in pairs or (b, a) in pairs else quick(a, b)


def times(factor: float) -> Own:
    """All of it takes so many times as long."""
    return lambda rank, step: {name: factor * s for name, s in stage(rank, step).items()}


def slow_stage(rank: int, phase: str, seconds: float, every: int = 1, **also: float) -> Own:
    """As usual, but one stage spends more in a phase (at one of `every` steps)."""

    def own(who: int, step: int) -> dict[str, float]:
        work = stage(who, step)
        return {**work, phase: work.get(phase, 0.0) + seconds, **also} if who == rank and step % every == 0 else work

    return own
