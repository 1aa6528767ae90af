"""What a checkpoint holds and the run does not take; and the many healthy ways to load one."""

import copy
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from diagd.probes import naming, own_files, resuming
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.marks import KNOWN
from diagd.probes.named import NAMED
from diagd.probes.own_files import OWN
from diagd.probes.resuming import RESUMING
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

LONG_AGO = 1.0  # as a file's time


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def optimizer(of: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(of.parameters(), lr=0.1)


def train(net: nn.Module, optim: torch.optim.Optimizer, steps: int = 4) -> None:
    for _ in range(steps):
        net(torch.ones(1, 3)).sum().backward()
        optim.step()


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch, recording: BoxWriter) -> Iterator[dict[str, str]]:
    """What was told; the probe is in place in this process."""
    found: dict[str, str] = {}

    def tell(name: str, text: str, step: int | None = None) -> None:
        if name not in ("checkpoint/loaded", "checkpoint/moments", "checkpoint/kept", "checkpoint/given"):
            found[name] = text

    monkeypatch.setattr(SIGNALS, "fact", tell)
    probe = Probe("resuming", 0, True)
    resuming._told.clear()
    naming.forget()
    own_files.forget()
    RESUMING.__init__()  # type: ignore[misc]
    names = ("torch.serialization", "torch.nn.modules.module", "torch.optim.optimizer", "torch.optim.lr_scheduler")
    for name in names:
        resuming.install(probe, sys.modules[name])
    yield found
    resuming.remove()
    RESUMING.__init__()  # type: ignore[misc]


@pytest.fixture
def saved(facts: dict[str, str], tmp_path: Path) -> Path:
    """A checkpoint that this run has written after ten steps."""
    net = model()
    optim = optimizer(net)
    schedule = torch.optim.lr_scheduler.StepLR(optim, 5)
    for _ in range(10):
        train(net, optim, 1)
        schedule.step()
    path = tmp_path / "last.pt"
    parts = {"model": net.state_dict(), "optim": optim.state_dict(), "sched": schedule.state_dict(), "step": 10}
    torch.serialization.save(parts, path)
    return path


def load(path: Path) -> Any:
    return torch.serialization.load(path)


def test_a_resumed_run_with_fresh_moments_and_schedule_is_told(facts: dict[str, str], saved: Path) -> None:
    net, kept = model(), load(saved)
    net.load_state_dict(kept["model"])
    optim = optimizer(net)
    schedule = torch.optim.lr_scheduler.StepLR(optim, 5)
    train(net, optim, 2)
    assert facts == {}
    train(net, optim, 1)
    assert facts == {"checkpoint/optimizer": "last.pt|4", "checkpoint/schedule": "last.pt|10"}
    assert schedule.last_epoch == 0


def all_taken(net: nn.Module, kept: Any) -> Any:
    optim = optimizer(net)
    schedule = torch.optim.lr_scheduler.StepLR(optim, 5)
    net.load_state_dict(kept["model"])
    optim.load_state_dict(kept["optim"])
    schedule.load_state_dict(kept["sched"])
    return optim


def placed_by_its_argument(net: nn.Module, kept: Any) -> Any:
    net.load_state_dict({f"{name}": tensor for name, tensor in kept["model"].items()})
    optim = optimizer(net)
    optim.load_state_dict(kept["optim"])
    return optim, torch.optim.lr_scheduler.StepLR(optim, 5, last_epoch=kept["step"])


def only_evaluated(net: nn.Module, kept: Any) -> Any:
    net.load_state_dict(kept["model"])
    return None


def without_a_schedule(net: nn.Module, kept: Any) -> Any:
    net.load_state_dict(kept["model"])
    optim = optimizer(net)
    optim.load_state_dict(kept["optim"])
    return optim


class _Sharded(torch.optim.Optimizer):
    """Keeps None for the parameters that other ranks update, as ZeRO does."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for one in self.param_groups[0]["params"]:
            one.sub_(one.grad, alpha=0.01)


def with_a_part_of_the_state(net: nn.Module, kept: Any) -> Any:
    net.load_state_dict(kept["model"])
    optim = _Sharded(net.parameters(), {})
    kept["optim"]["state"].update({0: None, 2: None})
    optim.load_state_dict(kept["optim"])
    return optim


@pytest.mark.parametrize(
    "resume", [all_taken, placed_by_its_argument, only_evaluated, without_a_schedule, with_a_part_of_the_state]
)
def test_of_a_run_that_takes_what_it_needs_nothing_is_said(
    facts: dict[str, str], saved: Path, resume: Callable[[nn.Module, Any], Any]
) -> None:
    net = model()
    made = resume(net, load(saved))
    if made is not None:
        train(net, made[0] if isinstance(made, tuple) else made, 6)
    assert facts == {}
    assert STATE.live[Live.PROBE_ERRORS] == 0


def test_weights_of_another_run_are_taken_alone_on_purpose(facts: dict[str, str], saved: Path) -> None:
    OWN.written.clear()
    os.utime(saved, (LONG_AGO, LONG_AGO))
    net = model()
    net.load_state_dict(load(saved)["model"])
    train(net, optimizer(net), 6)
    assert facts == {}


def test_a_file_that_another_rank_of_this_run_has_written_is_its_own(facts: dict[str, str], saved: Path) -> None:
    OWN.written.clear()
    OWN.began_s -= 1000.0
    net = model()
    net.load_state_dict(load(saved)["model"])
    train(net, optimizer(net), 6)
    assert set(facts) == {"checkpoint/optimizer"}


def test_a_run_that_goes_back_to_better_weights_keeps_its_moments(facts: dict[str, str], saved: Path) -> None:
    net = model()
    optim = optimizer(net)
    RESUMING.stepping.add(optim)
    net.load_state_dict(load(saved)["model"])
    train(net, optim, 6)
    assert facts == {}


@pytest.mark.parametrize(("given", "prefix", "where"), [("module.", "module.", "file"), ("", "backbone.", "model")])
def test_tensors_under_other_names_are_told(facts: dict[str, str], given: str, prefix: str, where: str) -> None:
    net: nn.Module = model()
    kept = {given + name: tensor for name, tensor in model().state_dict().items()}
    if not given:
        net = nn.ModuleDict({"backbone": net})
    net.load_state_dict(kept, strict=False)
    first = "0.weight" if given else "backbone.0.weight"
    assert facts["checkpoint/names"].split("|")[:3] == ["4 of 4", prefix, where]
    assert facts["checkpoint/names"].split("|")[3].startswith(first)
    net.load_state_dict(copy.deepcopy(net.state_dict()))
    assert facts["checkpoint/names"] == ""


@pytest.mark.parametrize(
    "kept",
    [
        {},  # an empty file: all is missing, and nothing is there under another name
        {"adapter.weight": torch.ones(3)},
        {"0.weight": torch.ones(4, 3), "0.bias": torch.ones(4), "head.weight": torch.ones(9, 4)},  # another head
        {"0.weight": torch.ones(4, 3), "0.bias": torch.ones(4), "old.1.weight": torch.ones(2, 4)},
        {"enc.0.weight": torch.ones(5, 5), "enc.1.weight": torch.ones(5, 5)},  # of another shape
    ],
)
def test_parts_that_are_left_out_on_purpose_are_not(facts: dict[str, str], kept: dict[str, Any]) -> None:
    model().load_state_dict(kept, strict=False)
    assert facts == {}


def test_names_that_fit_nothing_are_told_in_the_midst_of_a_run(facts: dict[str, str], recording: BoxWriter) -> None:
    recording.live[int(Live.STEP)] = 4
    kept = {"0.weight": torch.ones(4, 3), "0.bias": torch.ones(4), "old.1": torch.ones(2, 4)}
    model().load_state_dict(kept, strict=False)
    assert facts["checkpoint/strays"] == "1.weight,1.bias|old.1"


def test_it_is_told_that_an_optimizer_has_loaded_state(facts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(SIGNALS, "fact", lambda name, text: told.append((name, text)))
    net = model()
    made = optimizer(net)
    made.load_state_dict(optimizer(net).state_dict())  # there was no step yet, so it holds none
    assert told == []
    train(net, made)
    made.load_state_dict(copy.deepcopy(made.state_dict()))
    assert told == [("checkpoint/moments", "4 parameters")]


def test_it_is_told_when_a_file_of_the_runs_own_was_written_that_is_read(
    facts: dict[str, str], saved: Path, recording: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr(SIGNALS, "record", lambda name, value, step: told.append((name, value, step)))
    written = max(recording.live[int(Live.STEP)], 0) + 1
    recording.live[int(Live.STEP)] = written + 6
    kept = load(saved)
    assert told == [("checkpoint/reread", float(written), written + 7)]
    net = model()
    optimizer(net).load_state_dict(kept["optim"])
    assert told[1:] == [("checkpoint/restored", 1.0, written + 7)]
    OWN.written.clear()  # another rank's, and older than this step: when it was written is not known
    os.utime(saved, (OWN.began_s + 1.0, OWN.began_s + 1.0))
    recording.live[int(Live.STEP_NS)] = time.monotonic_ns()
    OWN.began_s -= 100.0
    os.utime(saved, (OWN.began_s + 1.0, OWN.began_s + 1.0))
    load(saved)
    assert len(told) == 2
    time.sleep(0.05)  # file systems keep times by ticks
    os.utime(saved)  # in this very step
    load(saved)
    assert told[2:] == [("checkpoint/reread", written + 7.0, written + 7)]


def told_to_have_changed(
    monkeypatch: pytest.MonkeyPatch, recording: BoxWriter, path: Path, change: Callable[[nn.Module, Any], Any]
) -> list[str]:
    """A run saves after a step, reads its file again with `change`, and steps."""
    told: list[str] = []
    monkeypatch.setattr(SIGNALS, "fact", lambda name, text, step=None: told.append(text) if "changed" in name else None)
    monkeypatch.setattr(SIGNALS, "record", lambda *_: None)
    net = model()
    made = optimizer(net)
    train(net, made, 1)
    naming.parameters(list(net.parameters()), made)
    KNOWN.__init__()  # type: ignore[misc]
    naming.forget()
    torch.serialization.save({"a": net[0].state_dict(), "b": net[1].state_dict()}, path)
    again = model()
    change(again, load(path))
    train(again, optimizer(again), 1)
    return told


def as_it_was(net: nn.Module, kept: Any) -> None:
    net[0].load_state_dict(kept["a"])  # type: ignore[index]
    net[1].load_state_dict(kept["b"])  # type: ignore[index]


def one_left_out(net: nn.Module, kept: Any) -> None:
    net[0].load_state_dict(kept["a"])  # type: ignore[index]


def two_changed_places(net: nn.Module, kept: Any) -> None:
    as_it_was(net, kept)
    with torch.no_grad():
        net[1].weight.view(-1)[:].copy_(kept["a"]["weight"].view(-1)[:8])  # type: ignore[index]
        net[0].bias.copy_(kept["b"]["weight"].view(-1)[:4])  # type: ignore[index]


def test_what_came_back_otherwise_than_it_was_saved_is_told_by_name(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, str], recording: BoxWriter, tmp_path: Path
) -> None:
    assert told_to_have_changed(monkeypatch, recording, tmp_path / "a.pt", as_it_was) == []
    assert told_to_have_changed(monkeypatch, recording, tmp_path / "b.pt", one_left_out) == [
        "2 of 4|Sequential.1.weight,Sequential.1.bias"
    ]
    (text,) = told_to_have_changed(monkeypatch, recording, tmp_path / "c.pt", two_changed_places)
    assert text == "2 of 4|Sequential.0.bias,Sequential.1.weight"


def test_a_layer_that_holds_what_another_held_is_told_with_it(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, str], recording: BoxWriter, tmp_path: Path
) -> None:
    told: list[str] = []
    monkeypatch.setattr(SIGNALS, "fact", lambda name, text, step=None: told.append(text) if "changed" in name else None)
    twin = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    made = optimizer(twin)
    train(twin, made, 1)
    naming.parameters(list(twin.parameters()), made)
    torch.serialization.save({"first": twin[0].state_dict(), "second": twin[1].state_dict()}, tmp_path / "e.pt")
    kept = load(tmp_path / "e.pt")
    twin[0].load_state_dict(kept["second"])
    twin[1].load_state_dict(kept["first"])
    train(twin, made, 1)
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]
    pairs = ",".join(f"Sequential.{a}<Sequential.{b}" for a, b in zip(names, names[2:] + names[:2], strict=True))
    assert told == [f"4 of 4|{pairs}"]


@pytest.mark.parametrize(("order", "told"), [
    ([0, 1], []),
    ([1, 0], ["4 of 4|exp_avg|Sequential.1.weight<Sequential.0.weight,Sequential.1.bias<Sequential.0.bias,"
              "Sequential.0.weight<Sequential.1.weight,Sequential.0.bias<Sequential.1.bias"]),
])  # fmt: skip
def test_moments_that_came_back_for_another_parameter_are_told(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, str], recording: BoxWriter, tmp_path: Path, order: list[int],
    told: list[str],
) -> None:  # fmt: skip
    found: list[str] = []
    monkeypatch.setattr(SIGNALS, "fact", lambda name, text, step=None: found.append(text) if "moved" in name else None)

    def of_groups(net: nn.Sequential, order: list[int]) -> torch.optim.Adam:
        scale = nn.Parameter(torch.tensor(2.0))  # as large as Adam's count of its steps
        return torch.optim.Adam([{"params": [scale]}, *({"params": list(net[at].parameters())} for at in order)])

    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    made = of_groups(net, [0, 1])
    for _ in range(2):
        net(torch.randn(5, 3)).square().sum().backward()
        made.step()
    naming.parameters(list(net.parameters()), made)
    torch.serialization.save({"net": net.state_dict(), "optim": made.state_dict()}, tmp_path / "f.pt")
    kept = load(tmp_path / "f.pt")
    net.load_state_dict(kept["net"])
    again = of_groups(net, order)
    again.load_state_dict(kept["optim"])
    train(net, again, 1)
    assert found == told


def test_one_that_writes_at_each_step_is_looked_at_now_and_then(
    facts: dict[str, str], recording: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def held() -> Iterator[Any]:
        looks.append(1)
        return iter(())

    monkeypatch.setattr(NAMED, "held", held)
    for step in range(50):
        KNOWN.take(f"step_{step}.pt", step)
        KNOWN.take(f"step_{step}_2.pt", step)
    assert len(looks) < 25
    assert len(KNOWN.written) <= 64


def test_what_a_thread_of_the_scripts_writes_is_not_what_is_trained_now(
    facts: dict[str, str], recording: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    KNOWN.take("a.pt", 5)
    assert "a.pt" in KNOWN.written
    monkeypatch.setattr(KNOWN, "_next_ns", 0)
    monkeypatch.setattr(STATE, "trainer", -1)
    KNOWN.take("a.pt", 6)
    assert "a.pt" not in KNOWN.written


class _Master(torch.optim.Optimizer):
    """Keeps weights in half precision, and what makes small steps count in float32."""

    def __init__(self, parameters: Iterator[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-4})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one]
                state.setdefault("master", one.float().clone()).sub_(group["lr"] * one.grad.float())
                one.copy_(state["master"])


def _half() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).bfloat16()


def _steps(net: nn.Module, optim: torch.optim.Optimizer) -> None:
    for _ in range(2):
        net(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
        optim.step()


@pytest.mark.parametrize("mended", [False, True])
def test_a_state_that_is_cast_as_it_is_loaded_is_told_unless_it_is_put_right(
    facts: dict[str, str], recording: BoxWriter, mended: bool
) -> None:
    net = _half()
    before, after = _Master(net.parameters()), _Master(net.parameters())
    _steps(net, before)
    kept = copy.deepcopy(before.state_dict())
    after.load_state_dict(kept)
    if mended:
        for one, state in zip(net.parameters(), kept["state"].values(), strict=True):
            after.state[one]["master"] = state["master"]
    _steps(net, after)
    told = facts.get("dtypes/state", "").split("\t")
    assert told[:2] == ([""] if mended else ["float32", "bfloat16"])
    assert mended or told[2].count(".master") == 4


def test_a_state_of_the_dtype_that_its_optimizer_keeps_is_no_cast_one(
    facts: dict[str, str], recording: BoxWriter
) -> None:
    net = _half()
    before, after = optimizer(net), optimizer(net)
    _steps(net, before)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    _steps(net, after)
    assert "dtypes/state" not in facts
