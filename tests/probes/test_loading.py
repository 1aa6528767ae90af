"""What torch.distributed.checkpoint, safetensors and from_pretrained load, and what of it a resumed run leaves."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from diagd.probes import loading, naming, own_files, resuming, turns
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.own_files import OWN
from diagd.probes.resuming import RESUMING
from diagd.probes.signals import SIGNALS

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
OF_RESUMING = ("torch.serialization", "torch.nn.modules.module", "torch.optim.optimizer", "torch.optim.lr_scheduler")
OF_LOADING = (
    "torch.distributed.checkpoint.filesystem",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.checkpoint.state_dict_loader",
    "torch.distributed.checkpoint.state_dict_saver",
    "safetensors.torch",
)


@pytest.fixture
def probe() -> Probe:
    return Probe("loading", 0, True)


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch, recording: BoxWriter, probe: Probe) -> Iterator[dict[str, str]]:
    """What was told; both probes are in place in this process."""
    told: dict[str, str] = {}
    marks = ("checkpoint/kept", "checkpoint/given")  # of whose state it is: test_whose.py
    keep = lambda name, text, step=None: None if name in marks else told.update({name: text})  # noqa: E731
    monkeypatch.setattr(SIGNALS, "fact", keep)
    resuming._told.clear()
    RESUMING.__init__()  # type: ignore[misc]
    own_files.forget()
    for name in OF_RESUMING:
        resuming.install(probe, sys.modules[name])
    for name in OF_LOADING:
        loading.install(probe, sys.modules[name])
    yield told
    loading.remove()
    resuming.remove()
    RESUMING.__init__()  # type: ignore[misc]


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4) -> None:
    for _ in range(steps):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()


def made() -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A distributed checkpoint of another process: weights, moments and a schedule."""
    model, optimizer, schedule = made()
    train(model, optimizer)
    parts = {"model": model.state_dict(), "optim": optimizer.state_dict(), "sched": schedule.state_dict()}
    state_dict_saver.save(parts, checkpoint_id=tmp_path / "step-4", no_dist=True)
    own_files.forget()
    return tmp_path / "step-4"


def load(state: dict[str, Any], folder: Path) -> None:
    state_dict_loader.load(state, checkpoint_id=folder, no_dist=True)


# --- a distributed checkpoint


def test_weights_that_were_loaded_in_place_are_told(facts: dict[str, str], folder: Path) -> None:
    load({"model": net().state_dict()}, folder)
    assert facts == {"checkpoint/loaded": "step-4, 1 entries"}


def test_a_fresh_optimizers_state_asks_for_no_moments_and_so_begins_anew(facts: dict[str, str], folder: Path) -> None:
    model, optimizer, _ = made()
    state = {"model": model.state_dict(), "optim": optimizer.state_dict()}
    load(state, folder)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optim"])
    train(model, optimizer)
    assert facts["checkpoint/optimizer"] == "step-4|4"


def test_a_run_that_takes_its_schedule_and_leaves_the_moments_is_told(facts: dict[str, str], folder: Path) -> None:
    model, optimizer, schedule = made()
    state = {"model": model.state_dict(), "sched": schedule.state_dict()}
    load(state, folder)
    schedule.load_state_dict(state["sched"])
    train(model, optimizer)
    assert facts["checkpoint/optimizer"] == "step-4|4"


def test_weights_alone_of_another_run_are_taken_on_purpose(facts: dict[str, str], folder: Path) -> None:
    OWN.began_s += 1000.0
    model, optimizer, _ = made()
    load({"model": model.state_dict()}, folder)
    train(model, optimizer)
    assert set(facts) == {"checkpoint/loaded"}


def test_moments_that_were_loaded_in_place_are_taken(facts: dict[str, str], folder: Path) -> None:
    model, optimizer, _ = made()
    train(model, optimizer, 1)
    RESUMING.stepping.clear()
    state = {"model": model.state_dict(), "optim": optimizer.state_dict()}
    load(state, folder)
    train(model, optimizer)
    assert set(facts) == {"checkpoint/loaded"}


class App:
    """What the documentation of torch.distributed.checkpoint recommends."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        weights, moments = get_state_dict(self.model, self.optimizer)
        return {"model": weights, "optim": moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def test_an_object_that_takes_its_part_itself_is_well_resumed(facts: dict[str, str], tmp_path: Path) -> None:
    model, optimizer, _ = made()
    train(model, optimizer)
    state_dict_saver.save({"app": App(model, optimizer)}, checkpoint_id=tmp_path / "app", no_dist=True)
    RESUMING.__init__()  # type: ignore[misc]
    model, optimizer, _ = made()
    load({"app": App(model, optimizer)}, tmp_path / "app")
    assert RESUMING.file is not None
    assert RESUMING.file.model_taken
    assert RESUMING.file.optimizer_taken
    train(model, optimizer)
    assert set(facts) == {"checkpoint/loaded", "checkpoint/moments"}


def test_a_folder_of_the_runs_own_that_is_read_is_told_with_what_did_not_come_back(
    facts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, float, int]] = []
    monkeypatch.setattr(SIGNALS, "record", lambda name, value, step: told.append((name, value, step)))
    model, optimizer, _ = made()
    train(model, optimizer)
    naming.forget()
    naming.parameters(list(model.parameters()), optimizer)
    state_dict_saver.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "at-4", no_dist=True)
    (written,) = OWN.written.values()
    fresh, optimizer, _ = made()
    load({"model": {name: tensor.clone() for name, tensor in fresh.state_dict().items()}}, tmp_path / "at-4")
    train(fresh, optimizer, 1)
    assert ("checkpoint/reread", float(written), written) in told
    assert facts["checkpoint/changed"].startswith("4 of 4|Sequential.0.weight,")


def test_the_step_that_makes_an_optimizers_state_is_none_of_training(facts: dict[str, str], probe: Probe) -> None:
    model, optimizer, _ = made()
    seen: list[Any] = []
    turns.join_every(probe, seen.append, seen.append)
    get_state_dict(model, optimizer)
    assert optimizer.state
    assert seen == []
    train(model, optimizer, 1)
    assert seen == [optimizer, optimizer]
    turns.leave(probe)


def test_a_load_that_fails_leaves_nothing_behind(facts: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BaseException, match="metadata"):
        load({"model": net().state_dict()}, tmp_path)
    assert facts == {}
    assert loading.LOAD.path == ""


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["optim.state.0.weight.exp_avg", "optim.state.0.weight.exp_avg_sq", "optim.state.0.weight.step"], 1),
        (["state.0.momentum_buffer", "state.1.momentum_buffer", "param_groups"], 2),
        (["app.optim.state.a.b.exp_avg"], 1),
        (["model.state.cell.weight", "model.step", "sched.last_epoch", "exp_avg"], 0),
    ],
)
def test_what_an_optimizer_keeps_is_known_by_its_name(names: list[str], count: int) -> None:
    assert loading.moments(names) == count


# --- safetensors, from_pretrained


def test_a_file_of_safetensors_is_told(facts: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(net().state_dict(), path)
    assert set(safetensors.torch.load_file(path)) == set(net().state_dict())
    assert facts == {"checkpoint/loaded": "model.safetensors"}


def test_a_model_of_safetensors_is_told(facts: dict[str, str], tmp_path: Path) -> None:
    saved, model = net(), net()
    safetensors.torch.save_model(saved, str(tmp_path / "model.safetensors"))
    missing, unexpected = safetensors.torch.load_model(model, tmp_path / "model.safetensors")
    assert not missing
    assert not unexpected
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(model.parameters(), saved.parameters(), strict=True))
    assert "checkpoint/loaded" in facts


def test_from_pretrained_is_told_and_keeps_the_class_that_it_is_called_on(facts: dict[str, str], probe: Probe) -> None:
    class PreTrainedModel:
        @classmethod
        def from_pretrained(cls, name: str) -> Any:
            return cls(), name

    class Bert(PreTrainedModel):
        pass

    module: Any = SimpleNamespace(__name__="transformers.modeling_utils", PreTrainedModel=PreTrainedModel)
    loading.install(probe, module)
    model, name = Bert.from_pretrained("tiny")
    assert (type(model), name, facts) == (Bert, "tiny", {"checkpoint/loaded": "Bert"})
    loading.remove()
    assert Bert.from_pretrained("tiny")[1] == "tiny"


def test_an_older_torch_without_these_functions_is_left_alone(probe: Probe) -> None:
    loading.install(probe, ModuleType("torch.distributed.checkpoint.state_dict_loader"))
    loading.remove()
    assert not probe.errors
