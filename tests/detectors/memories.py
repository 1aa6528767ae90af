"""Runs whose memory does something, as series in a state."""

import json
from typing import Any, Self

import numpy as np
from tests.detectors.scalars import signals

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.growth import Floats
from diagd.daemon.detectors.memory_rules import memory
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Facts

MIB = 1024.0 * 1024.0
GIB = 1024.0 * MIB
BASE = 300.0 * MIB
STEP_S = 0.05


class Run:
    """A job of some ranks on one node, all at the same step."""

    def __init__(self, world: int = 1, steps: int = 200, *, step_s: float = STEP_S, room: float = 64 * GIB) -> None:
        self.state = JobState("job")
        self.steps = steps
        for second in (0.0, 1.0):  # two looks, from which the time of a step is known
            at = int(steps - (1.0 - second) / step_s)
            facts = [Facts(r, pid=100 + r, step=max(at, min(steps, 1)), step_s=1000.0 + second) for r in range(world)]
            self.state.apply(facts, [Detail(r, node="node", pid=100 + r) for r in range(world)], 1000.0 + second)
        for rank in range(world):
            self.tells(rank, "memory/available", np.array([room, room]), every=1)
            self.tells(rank, "memory/limit", np.array([64 * GIB]), every=1)

    def tells(self, rank: int, name: str, values: Floats, every: int = 1) -> Self:
        """A series, one value in so many steps."""
        signals(self.state, rank, name, range(1, len(values) * every + 1, every), values)
        return self

    def holds(self, rank: int, floors: Floats, virtual: Floats | None = None) -> Self:
        """What it holds after each step; its address space grows with it unless that is told."""
        self.tells(rank, "memory/virtual", 10 * GIB + floors if virtual is None else virtual)
        return self.tells(rank, "memory/floor", floors)

    def workers(self, rank: int, sizes: Floats, first: Floats | None = None, every: int = 10) -> Self:
        """What its data workers hold together, as the agent sees it now and then."""
        self.tells(rank, "memory/workers", np.full(len(sizes), 2.0), every)
        self.tells(rank, "memory/worker_first", np.full(len(sizes), 7.0) if first is None else first, every)
        return self.tells(rank, "memory/worker_rss", sizes, every)

    def holder(self, rank: int = 0, **said: Any) -> Self:
        """What a look inside has seen grow."""
        usual = {"path": "hist.store", "kind": "list", "grew": 20, "steps": 20, "verdict": "kept", "owner": "History"}
        places = {"places": [["History.add", "/job/train.py", 12]]}
        self.state.signals.put_fact(rank, "memory/holder", self.steps, json.dumps({**usual, **places, **said}))
        return self

    def loader(self, rank: int = 0, **said: Any) -> Self:
        """Its data loader."""
        usual = {"dataset": "Captions", "length": 5000, "workers": 2, "grown": []}
        self.state.signals.put_fact(rank, "memory/loader", 1, json.dumps({**usual, **said}))
        return self

    def finds(self) -> list[Finding]:
        """All that is said of memory."""
        return list(memory(scene_of(self.state)))

    def alarms(self) -> list[Finding]:
        """What is more than worth knowing."""
        return [finding for finding in self.finds() if finding.severity != "info"]

    def one(self) -> Finding:
        """The one thing that is found."""
        (found,) = self.finds()
        return found


def noise(rng: np.random.Generator, steps: int, scale: float = 2.0) -> Floats:
    """What a floor varies by, in bytes."""
    return np.abs(rng.normal(0.0, scale * MIB, steps))


def leak(steps: int, a_step: float = 2.0, since: int = 0, base: float = BASE, seed: int = 0) -> Floats:
    """A floor that rises by so many MiB a step since a step."""
    made = base + np.maximum(np.arange(steps) - since, 0) * a_step * MIB + noise(np.random.default_rng(seed), steps)
    return made.astype(np.float64)


def flat(steps: int, base: float = BASE, seed: int = 1) -> Floats:
    """A floor that does not rise."""
    return leak(steps, 0.0, base=base, seed=seed)
