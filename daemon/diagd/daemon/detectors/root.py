"""The rank at an end of the wait-for graph, what is known of it, and a finding about it."""

from dataclasses import dataclass, replace
from typing import Self

from diagd.daemon.detectors import places, words
from diagd.daemon.detectors.finding import Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.life import Life, life_of
from diagd.daemon.detectors.scene import LATE_S, Scene
from diagd.daemon.detectors.victims import directly, victims_of
from diagd.daemon.state.model import Detail, Frame

FORWARD = frozenset({"_call_impl", "_wrapped_call_impl", "forward"})  # of torch.nn.Module and of the script


@dataclass(frozen=True, slots=True)
class Root:
    """A rank that others wait for (or that stands still alone), and what is known of it."""

    rank: int
    detail: Detail
    life: Life
    dependents: tuple[int, ...]
    waited_s: float
    failed: bool  # the others' waits have already ended in errors
    starved: bool
    locations: tuple[Location, ...]

    def with_locations(self, locations: tuple[Location, ...]) -> Self:
        """The same, seen at these places."""
        return replace(self, locations=locations)

    @property
    def place(self) -> Frame | None:
        """Its innermost user frame."""
        return places.first(self.locations)


def root_of(scene: Scene, rank: int) -> Root:
    detail = scene.state.detail(rank)
    dependents = scene.graph.waiting_for((rank,))
    stepped_s = float(scene.state.columns.step_s[rank]) if rank < len(scene.state.columns.step_s) else 0.0
    phase = scene.state.phases[rank] if rank < len(scene.state.phases) else "other"
    return Root(
        rank, detail, life_of(scene.state, rank), dependents, scene.longest_s(dependents), scene.failed(dependents),
        places.in_data_loader(detail) or (phase == "data" and detail.stack is None), places.outside(detail, stepped_s),
    )  # fmt: skip


def seen(scene: Scene, root: Root) -> Evidence:
    where = words.place_text(root.place)
    phase = _phase(root.detail, scene.state.phases[root.rank])
    source = "stack" if root.detail.stack is not None else "probe"
    return Evidence(f"in {where}, {phase}" if where else f"in {phase}", source, root.rank, scene.step((root.rank,)))


def _phase(detail: Detail, phase: str) -> str:
    """In words: what comes after a batch or a step counts as forward, until backward begins."""
    main = detail.stack.main if detail.stack is not None else None
    if phase == "forward" and main is not None and all(frame.function not in FORWARD for frame in main.frames):
        return "in no forward or backward pass"
    return f"phase {phase}"


def waiting_text(scene: Scene, root: Root) -> tuple[Evidence, ...]:
    """What some of the others wait in, those that wait for the rank itself first."""
    found = []
    for dependent in sorted(root.dependents, key=lambda r: directly(scene, (root.rank,), r) is None)[:3]:
        own = directly(scene, (root.rank,), dependent)
        wait = own or scene.graph.wait(dependent)
        if wait is not None:
            text = f"in {words.op_text(wait.op)}{scene.lasting(scene.age_s(wait))}"
            if own is None and (others := scene.graph.edges.get(dependent)):
                text += f", for {words.ranks_text(others)}"
            found.append(Evidence(text, wait.op.source, dependent, scene.step((dependent,))))
    return tuple(found)


def finding_of(
    scene: Scene, root: Root, kind: str, severity: Severity, cause: Cause, said: str, sure: bool = False
) -> Finding:  # fmt: skip
    wait = next((w for d in root.dependents if (w := scene.graph.for_whom.get((d, root.rank)))), None)
    where = words.place_text(root.place)
    summary = f"rank {root.rank} {said}" + (f" in {where}" if where else "")
    if wait is not None:
        lasting = scene.lasting(root.waited_s) if root.waited_s >= LATE_S else ""
        summary += f"; {victims_of(scene, (root.rank,), root.dependents).clauses(lasting)}"
    return Finding(
        kind=kind,
        severity=severity,
        ranks=(root.rank,),
        waiting_ranks=root.dependents,
        group=wait.op.group or None if wait is not None else None,
        op_name=wait.op.name if wait is not None else "",
        op_seq=wait.op.seq if wait is not None else 0,
        names=("worker",) if root.starved and places.busy_workers(root.detail) else (),
        summary=words.shortened(summary + "."),
        locations=root.locations,
        causes=(cause,),
        step=scene.step((root.rank,)),
        sure=sure,
        times_out_s=scene.times_out_s(root.dependents),
        since_s=scene.state.now_s - max(root.waited_s, root.life.idle_s if not root.dependents else 0.0),
        key=f"root:{root.rank}",
    )
