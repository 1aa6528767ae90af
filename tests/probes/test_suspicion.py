"""When a rank looks at what its script holds, and what it tells of that."""

import json
import sys
import time
from typing import Any

import pytest

from diagd.probes import heartbeat, signals, suspicion, uses
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe

MIB = 1024 * 1024
LONG_NS = 60_000_000_000


class Store:
    """What a script keeps."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.full: dict[int, bytes] = {}

    def keep(self, size: int) -> None:
        self.kept.append(b"x" * size)

    def cache(self, key: int) -> bytes:
        if key not in self.full:
            self.full[key] = b"x" * MIB
        return self.full[key]


class Told:
    """The facts that were told, by name."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}

    def fact(self, name: str, text: str, step: int | None = None) -> None:
        self.facts[name] = text

    def of(self, name: str) -> dict[str, Any]:
        """The fact as it is read outside."""
        return dict(json.loads(self.facts[name])) if self.facts.get(name) else {}


@pytest.fixture
def told(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()
    monkeypatch.setattr(suspicion, "SIGNALS", found)
    heartbeat.ERRANDS.clear()
    assert signals.SIGNALS is not None
    return found


def grows(watch: suspicion.Suspicion, steps: int, a_step: int = MIB, begin: int = 0, store: Store | None = None) -> int:
    """Let it make steps that hold so much more each, and keep that in the store; how often it looked."""
    looks = 0
    for step in range(begin + 1, begin + steps + 1):
        if store is not None:
            store.keep(a_step)
        held = 100 * MIB + step * a_step
        if watch.due(step, held):
            looks += 1
            watch.look(sys._getframe(), step, held, time.thread_time_ns() + LONG_NS)
    while heartbeat.ERRANDS:
        heartbeat.ERRANDS.popleft()()
    return looks


def test_nothing_is_looked_at_where_nothing_grows(told: Told) -> None:
    assert grows(suspicion.Suspicion(), 1000, a_step=0) == 0


def test_the_list_that_grows_is_told_with_how_much_and_where(told: Told) -> None:
    watch = suspicion.Suspicion()
    looks = grows(watch, 60, store=Store())
    said = told.of(suspicion.HOLDER)
    assert 2 <= looks <= 4
    assert (said["path"], said["kind"], said["verdict"]) == ("store.kept", "list", "kept")
    assert said["grew"] == said["steps"]
    assert 0.9 * MIB < said["bytes"] < 1.1 * MIB
    assert said["places"][0][0] == "Store.keep"


def test_looks_become_rarer_while_it_goes_on(told: Told) -> None:
    assert grows(suspicion.Suspicion(), 1200) <= 8


def test_what_holds_too_little_to_explain_the_growth_is_not_told(told: Told) -> None:
    watch, store = suspicion.Suspicion(), Store()
    for begin in range(0, 60, 10):
        store.keep(100)  # once in ten steps
        grows(watch, 10, begin=begin)
    assert len(store.kept) == 6
    assert suspicion.HOLDER not in told.facts


def test_once_it_is_let_go_of_what_was_told_is_withdrawn(told: Told) -> None:
    watch = suspicion.Suspicion()
    grows(watch, 60, store=Store())
    assert told.of(suspicion.HOLDER)
    assert not watch.due(61, 100 * MIB)
    assert told.facts[suspicion.HOLDER] == ""


def test_a_cache_is_told_as_one(told: Told) -> None:
    watch, store = suspicion.Suspicion(), Store()
    for step in range(1, 60):
        store.cache(step)
        grows(watch, 1, begin=step)
    assert told.of(suspicion.HOLDER)["verdict"] == "cache"


class Samples:
    """A dataset."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __getitem__(self, place: int) -> int:
        self.seen.append(place)
        return place


class Loader:
    """What is read of torch's."""

    dataset = Samples()
    num_workers = 2
    batch_sampler = sampler = None

    def __iter__(self) -> Any:
        return self


def test_a_loader_is_told_with_what_its_dataset_fills_and_no_length_that_only_the_script_knows(told: Told) -> None:
    loader = Loader()
    suspicion.note_loader(loader, loader)
    suspicion.note_loader(loader, loader)
    assert len(heartbeat.ERRANDS) == 1
    heartbeat.ERRANDS.popleft()()
    said = told.of(suspicion.LOADER)
    assert (said["dataset"], said["workers"], said["length"]) == ("Samples", 2, -1)
    assert [(path, verdict) for path, verdict, _ in said["grown"]] == [("Samples.seen", "kept")]


def test_an_errand_that_fails_is_this_probes_failure_alone(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("for a test")

    probe = Probe("memory", 3, always=True)
    monkeypatch.setattr(suspicion.GUARD, "probe", probe)
    monkeypatch.setattr(uses, "uses", fails)
    grows(suspicion.Suspicion(), 60, store=Store())
    assert probe.errors >= 1
    assert suspicion.HOLDER not in told.facts


def test_a_text_that_is_too_long_loses_what_can_be_missed_first() -> None:
    said = {"path": "x", "places": [["f", "g" * 600, 1]], "owner_file": "o" * 300, "file": "f" * 300}
    kept = json.loads(suspicion._short(said))
    assert "path" in kept
    assert len(json.dumps(kept)) < 1000
