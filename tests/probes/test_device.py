"""A device's memory, by a stand-in with the calls and shapes that torch documents: not run on a GPU."""

import pickle
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diagd.probes import device_memory, device_snapshot
from diagd.probes.box.writer import BoxWriter
from diagd.probes.state import STATE

GIB = 1024.0**3
SECOND_NS = 10**9
LEAK = {"name": "forward", "filename": "/job/model.py", "line": 31}
TORCHS = {"name": "linear", "filename": "/usr/lib/python3/site-packages/torch/nn/functional.py", "line": 2}


class FakeMemory:
    """torch.cuda.memory, with blocks of one site that become more with each snapshot."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.taken = 0

    def _record_memory_history(self, enabled: str | None = "all", **more: Any) -> None:
        self.calls.append(enabled)

    def _snapshot(self) -> dict[str, Any]:
        self.taken += 1
        block = {"size": 1 << 20, "state": "active_allocated", "frames": [TORCHS, LEAK]}
        old = {"size": 9 << 20, "state": "active_allocated", "frames": []}
        freed = {"size": 9 << 20, "state": "inactive", "frames": [TORCHS]}
        return {"segments": [{"blocks": [old, freed, *[block] * (self.taken * 20)]}], "device_traces": []}


class Told:
    """Takes what is recorded."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}
        self.facts: dict[str, str] = {}

    def record(self, name: str, value: float, step: int | None = None) -> None:
        self.values.setdefault(name, []).append(value)

    def fact(self, name: str, text: str, step: int | None = None) -> None:
        self.facts[name] = text


@pytest.fixture
def told(recording: BoxWriter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    found = Told()
    monkeypatch.setattr(device_memory, "SIGNALS", found)
    monkeypatch.setattr(device_snapshot, "SIGNALS", found)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return found


def torch_with(memory: FakeMemory, monkeypatch: pytest.MonkeyPatch, records: bool = False) -> None:
    backend = SimpleNamespace(_cuda_isHistoryEnabled=lambda: records)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(memory=memory), _C=backend))


def fills(watch: device_snapshot.Watch, steps: int, a_step: float, begin: int = 0) -> None:
    """A sample every ten steps, of a device of 80 GiB."""
    for step in range(begin + 1, begin + steps + 1, 10):
        watch.note(step, 40 * GIB + step * a_step, 80 * GIB)


def test_a_device_that_fills_is_looked_at_twice_and_named(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = FakeMemory()
    torch_with(memory, monkeypatch)
    watch = device_snapshot.Watch()
    fills(watch, 1000, GIB / 16)
    assert memory.calls == ["all", None]
    assert told.facts["memory/device_site"] == f"forward\t/job/model.py\t31\t{20 << 20}\t20"
    with Path(told.facts["memory/snapshot"]).open("rb") as file:
        assert set(pickle.load(file)) == {"segments", "device_traces"}


def test_one_that_does_not_fill_soon_is_not_recorded(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = FakeMemory()
    torch_with(memory, monkeypatch)
    fills(device_snapshot.Watch(), 1000, 0.0)
    fills(device_snapshot.Watch(), 1000, GIB / 1024)  # in 40,000 steps
    varies = device_snapshot.Watch()
    for step in range(1, 1000, 10):
        varies.note(step, 40 * GIB + step * GIB / 16 * (step % 3), 80 * GIB)
    assert memory.calls == []


def test_a_script_that_records_by_itself_is_left_alone(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = FakeMemory()
    torch_with(memory, monkeypatch, records=True)
    fills(device_snapshot.Watch(), 1000, GIB / 16)
    assert memory.calls == []
    assert any("no memory snapshot" in note for note in STATE.notes)


def test_a_file_that_cannot_be_written_ends_the_recording(
    told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    memory = FakeMemory()
    torch_with(memory, monkeypatch)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "none"))
    watch = device_snapshot.Watch()
    with pytest.raises(OSError, match="none"):
        fills(watch, 1000, GIB / 16)
    fills(watch, 1000, GIB / 16)
    assert memory.calls == ["all", None]


def test_a_torch_without_these_calls_is_done_without(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(), _C=SimpleNamespace()))
    fills(device_snapshot.Watch(), 1000, GIB / 16)
    assert told.facts == {}


def samples(stats: dict[str, Any], memory: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of steps of a tenth each, on a device of 100 bytes."""
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        memory_stats_as_nested_dict=lambda: stats,
        current_device=lambda: 0,
        get_device_properties=lambda device: SimpleNamespace(total_memory=100),
        memory=memory,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, _C=SimpleNamespace()))
    for name in ("read_ns", "total", "walk_ns"):
        monkeypatch.setattr(device_memory._Device, name, 0)
    monkeypatch.setattr(device_memory._Device, "pieces_ns", -device_memory.PIECES_EVERY_NS)
    for tenth in range(1, 11):
        device_memory.sample(tenth, SECOND_NS + tenth * SECOND_NS // 10)


def test_pinned_memory_is_recorded_by_what_torchs_cache_holds(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = {"allocated_bytes": {"current": 512}, "active_bytes": {"current": 256}}
    samples({}, SimpleNamespace(host_memory_stats_as_nested_dict=lambda: pinned), monkeypatch)
    assert told.values["memory/pinned"] == [512.0, 512.0]


@pytest.mark.parametrize(("reserved", "looked"), [(95, 1), (60, 0)])
def test_the_pieces_are_looked_at_once_where_the_device_is_nearly_full(
    told: Told, monkeypatch: pytest.MonkeyPatch, reserved: int, looked: int
) -> None:
    blocks = [{"size": 40, "state": "active_allocated"}, {"size": 7, "state": "inactive"}]
    pending = {"size": 30, "state": "active_pending_free"}  # not yet: another stream still reads it
    segments = [{"blocks": blocks}, {"blocks": [pending, {"size": 18, "state": "inactive"}]}]
    stats = {"reserved_bytes": {"all": {"current": reserved}}}
    samples(stats, SimpleNamespace(memory_snapshot=lambda: segments), monkeypatch)
    assert told.values.get("memory/device_largest_free", []) == [18.0] * looked


def test_the_allocators_counters_are_recorded_now_and_then(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {
        "allocated_bytes": {"all": {"current": 10, "peak": 30}},
        "reserved_bytes": {"all": {"current": 40}},
        "num_alloc_retries": 2,
    }
    samples(stats, SimpleNamespace(), monkeypatch)
    assert told.values["memory/device_allocated"] == [10.0, 10.0]
    assert told.values["memory/device_peak"] == [30.0, 30.0]
    assert told.values["memory/device_retries"] == [2.0, 2.0]
    assert told.values["memory/device_total"] == [100.0]


def test_without_a_device_nothing_is_recorded(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(device_memory._Device, "read_ns", 0)
    device_memory.sample(1, SECOND_NS)
    assert told.values == {}
