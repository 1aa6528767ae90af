"""Metrics that the script logs, in its rank's signals."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from diagd.daemon.agent.signals import SignalReader
from diagd.daemon.state.signals import SignalBook
from diagd.probes import log_metrics, logged, loggers, start
from diagd.probes.box.layout import Live
from diagd.probes.box.metric_text import Value
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe
from diagd.probes.logged import CALL, LOGGED, TEXT


@pytest.fixture(autouse=True)
def _anew(recording: BoxWriter) -> Iterator[None]:
    logged.forget()
    yield
    logged.forget()


@pytest.fixture
def loggers_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
    probe = Probe("loggers", 0, True)
    monkeypatch.setitem(start.SWITCHES, "loggers", probe)
    yield probe
    loggers.remove()


def told(box: BoxWriter) -> SignalBook:
    book = SignalBook()
    news = SignalReader(box.path.with_suffix(".signals"), 0, 1).news()
    assert news is not None
    book.apply([news])
    return book


def samples(box: BoxWriter, name: str) -> list[tuple[int, float]]:
    series = told(box).series(0, f"logged/{name}")
    return [] if series is None else list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def put(name: str, value: float, step: int | None = None, way: int = TEXT, decimals: int | None = None) -> None:
    LOGGED.put([Value(name, value, decimals)], step, way)


def test_a_metric_keeps_the_scripts_own_step_and_else_has_the_one_that_was_completed(recording: BoxWriter) -> None:
    put("loss", 0.5, step=70)
    recording.live[Live.STEP] = 4
    put("kl", 0.1)
    assert (samples(recording, "loss"), samples(recording, "kl")) == ([(70, 0.5)], [(4, 0.1)])


def test_what_is_shown_again_and_again_is_told_once(recording: BoxWriter) -> None:
    for _ in range(5):
        put("loss", 0.5, step=3)
    put("loss", 0.5, step=4)
    assert samples(recording, "loss") == [(3, 0.5), (4, 0.5)]


def test_what_a_logger_is_given_is_not_taken_from_the_screen_as_well(recording: BoxWriter) -> None:
    put("kl", 0.12, step=1, decimals=2)
    put("kl", 0.1234, step=2, way=CALL)
    put("kl", 0.12, step=2, decimals=2)
    assert samples(recording, "kl") == [(1, 0.12), (2, 0.1234)]
    assert told(recording).fact(0, "logged/kl") == (1, "exact")


def test_a_rounded_metric_says_to_how_many_decimals(recording: BoxWriter) -> None:
    put("kl", 0.1, decimals=1)
    put("kl", 0.1234, decimals=4)
    put("kl", 0.12, decimals=2)
    assert told(recording).fact(0, "logged/kl") == (1, "decimals 4")


def test_a_script_that_prints_names_without_end_fills_nothing(recording: BoxWriter) -> None:
    for number in range(3 * logged.MAX_NAMES):
        put(f"n{number}", 1.0, step=number)
    assert len(told(recording).names(0)) == logged.MAX_NAMES


def test_log_metrics_takes_numbers_of_all_kinds_and_nothing_else(recording: BoxWriter, loggers_on: Probe) -> None:
    import numpy as np

    weight = torch.nn.Parameter(torch.ones(1))
    log_metrics(
        {"a": 1, "b": np.float32(0.5), "c": torch.tensor(2.0), "d": {"e": 3.0}, "text": "x", "flag": True,
         "many": torch.ones(3), "weight": weight, "meta": torch.empty((), device="meta"), "nan": math.nan},
        step=9,
    )  # fmt: skip
    book = told(recording)
    assert book.names(0) == ("logged/a", "logged/b", "logged/c", "logged/d/e", "logged/nan")
    assert samples(recording, "c") == [(9, 2.0)]
    assert not loggers_on.errors


def test_log_metrics_is_nothing_outside_diagd_and_never_fails(recording: BoxWriter, loggers_on: Probe) -> None:
    log_metrics(None)  # type: ignore[arg-type]
    log_metrics({"a": 1.0}, step="seven")  # type: ignore[arg-type]
    start.SWITCHES.pop("loggers")
    log_metrics({"b": 1.0})
    assert told(recording).names(0) == ("logged/a",)


class SummaryWriter:
    """As TensorBoard's."""

    def add_scalar(self, tag: Any, scalar_value: Any, global_step: Any = None, walltime: Any = None) -> Any:
        return tag

    def add_scalars(self, main_tag: Any, tag_scalar_dict: Any, global_step: Any = None) -> Any:
        for name, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}_{name}", value, global_step)


class Run:
    """As wandb's."""

    def log(self, data: Any, step: Any = None, commit: Any = None) -> Any:
        if data.get("loss") == "bad":
            raise ValueError("bad")
        SummaryWriter().add_scalar("inner", 1.0, 1)


def module(name: str, **members: object) -> object:
    """A module of that name."""
    return SimpleNamespace(__name__=name, **members)


def test_scalars_for_tensorboard_are_seen_with_their_steps(recording: BoxWriter, loggers_on: Probe) -> None:
    loggers.install(loggers_on, module("torch.utils.tensorboard.writer", SummaryWriter=SummaryWriter))
    writer = SummaryWriter()
    assert writer.add_scalar("loss/train", torch.tensor(0.25), 100) == "loss/train"
    writer.add_scalar("lr", scalar_value=1e-3, global_step=100)
    writer.add_scalars("acc", {"train": 0.5, "val": 0.25}, 100)
    assert told(recording).names(0) == ("logged/loss/train", "logged/lr", "logged/acc/train", "logged/acc/val")
    assert samples(recording, "loss/train") == [(100, 0.25)]
    loggers.remove()
    assert "__wrapped__" not in vars(SummaryWriter.add_scalar)


def test_of_loggers_that_call_each_other_the_outermost_counts(recording: BoxWriter, loggers_on: Probe) -> None:
    loggers.install(loggers_on, module("torch.utils.tensorboard.writer", SummaryWriter=SummaryWriter))
    loggers.install(loggers_on, module("wandb.sdk.wandb_run", Run=Run))
    Run().log({"train": {"loss": 0.5}, "trainer/global_step": 12})
    assert told(recording).names(0) == ("logged/train/loss",)
    assert samples(recording, "train/loss") == [(12, 0.5)]


def test_a_logger_that_fails_fails_as_without_diagd(recording: BoxWriter, loggers_on: Probe) -> None:
    loggers.install(loggers_on, module("wandb.sdk.wandb_run", Run=Run))
    with pytest.raises(ValueError, match="bad"):
        Run().log({"loss": "bad"})
    Run().log({"loss": 0.5}, step=3)
    assert samples(recording, "loss") == [(3, 0.5)]


def test_mlflow_and_trainers_are_seen(recording: BoxWriter, loggers_on: Probe) -> None:
    class MlflowClient:
        def log_metric(self, run_id: Any, key: Any, value: Any, timestamp: Any = None, step: Any = None) -> Any:
            pass

        def log_batch(self, run_id: Any, metrics: Any = (), params: Any = (), tags: Any = ()) -> Any:
            pass

    class Trainer:
        state = type("TrainerState", (), {"global_step": 40})

        def log(self, logs: Any, start_time: Any = None) -> Any:
            logs["epoch"] = 1.0

    loggers.install(loggers_on, module("mlflow.tracking.client", MlflowClient=MlflowClient))
    loggers.install(loggers_on, module("transformers.trainer", Trainer=Trainer))
    client = MlflowClient()
    client.log_metric("run", "loss", 0.5, step=3)
    client.log_batch("run", metrics=[type("Metric", (), {"key": "kl", "value": 0.1, "step": 4})])
    Trainer().log({"reward": 2.0})
    assert [samples(recording, name) for name in ("loss", "kl", "reward")] == [[(3, 0.5)], [(4, 0.1)], [(40, 2.0)]]


def test_a_forked_child_begins_anew(recording: BoxWriter, tmp_path: Path) -> None:
    put("loss", 0.5, step=3)
    logged.forget()
    put("loss", 0.5, step=3)
    assert samples(recording, "loss") == [(3, 0.5), (3, 0.5)]


class Bar:
    def set_postfix(self, ordered_dict: Any = None, refresh: bool = True, **kwargs: Any) -> None:
        self.shown = (ordered_dict, refresh, kwargs)


def test_what_a_progress_bar_is_given_is_taken_from_the_call_and_what_was_made_text_as_if_printed(
    recording: BoxWriter, loggers_on: Probe
) -> None:
    loggers.install(loggers_on, module("tqdm.std", tqdm=Bar))
    recording.live[Live.STEP] = 6
    bar = Bar()
    bar.set_postfix({"loss": 0.25, "note": "warm"}, False, kl="0.031", lr=1e-3)
    assert bar.shown == ({"loss": 0.25, "note": "warm"}, False, {"kl": "0.031", "lr": 1e-3})
    assert [samples(recording, name) for name in ("loss", "kl", "lr")] == [[(6, 0.25)], [(6, 0.031)], [(6, 1e-3)]]
    assert told(recording).fact(0, "logged/kl") == (6, "decimals 3")
    assert samples(recording, "note") == []
    bar.set_postfix(pairs := iter([("loss", 0.5)]))
    assert list(pairs) == [("loss", 0.5)]
    bar.set_postfix(refresh=False)
