"""A head whose gradients outgrow those of the others, and what looks like it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.detectors.scalars import signals
from tests.detectors.states import Job, job
from tests.detectors.tensors import ledgers, same

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.numerics.rules import NUMERICS
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.state.tensors import TensorInfo

Floats = NDArray[np.floating[Any]]
SAMPLES, EVERY, CLIP = 40, 4, 1.0
STEADY = np.full(SAMPLES, 0.1)


def rising(to: float) -> Floats:
    """From 0.05, after a while at which it stays there."""
    first = SAMPLES // 3
    return np.concatenate([np.full(first, 0.05), np.geomspace(0.05, to, SAMPLES - first - 10), np.full(10, to)])


def trained(*levels: Floats, names: Sequence[str] = ("tags", "masks"), clips: bool = True) -> Job:
    """Heads with such gradients before the clip, which cuts them together."""
    made, steps = job(1), range(1, EVERY * SAMPLES, EVERY)
    norm = np.sqrt(sum(np.square(level) for level in levels))
    cut = np.maximum(norm / CLIP, 1.0) if clips else np.ones(SAMPLES)
    signals(made.state, 0, "grad_norm", steps, norm / cut)
    if clips:
        signals(made.state, 0, "clip_norm", steps, norm)
        signals(made.state, 0, "clip_norm/limit", steps, [CLIP] * SAMPLES)
    for name, level in zip(("trunk", *names), (STEADY, *levels), strict=True):
        signals(made.state, 0, f"grad_norm/Net.{name}.weight", steps, np.asarray(level) / cut)
    shapes = {"trunk": (64, 24), **{name: (8 - number, 64) for number, name in enumerate(names)}}
    infos = {TensorInfo(f"Net.{name}.weight", shape=shape): same for name, shape in shapes.items()}
    made.state.tensors.apply(ledgers(infos, (0,), (0,)), 1)
    return made


def found(made: Job) -> list[Finding]:
    scene = scene_of(made.report().state)
    return [one for rule in NUMERICS for one in rule(scene) if one.kind == "numerics.gradient_imbalance"]


@pytest.mark.parametrize("clips", [True, False])
def test_a_head_whose_gradients_grow_until_the_others_are_left_with_nothing_is_told_first(clips: bool) -> None:
    (one,) = found(trained(STEADY, rising(40.0), clips=clips))
    assert one.names[:2] == ("Net.masks.weight", "Net.tags.weight")
    assert ("one clip for all" in one.summary) is clips
    assert 60 < (one.step or 0) < 130


HEALTHY = {
    "the other one has learned all there is": (np.geomspace(0.1, 1e-4, SAMPLES), STEADY),
    "one has learned while the other grew": (np.geomspace(0.1, 1e-3, SAMPLES), rising(2.0)),
    "both grow": (rising(40.0), rising(40.0)),
    "it grows by less": (STEADY, rising(8.0)),
    "the other one has learned most of it": (np.geomspace(1.0, 0.105, SAMPLES), np.full(SAMPLES, 25.0)),
    "one sample": (STEADY, np.where(np.arange(SAMPLES) == SAMPLES - 1, 40.0, 0.05)),
}


@pytest.mark.parametrize("levels", HEALTHY.values(), ids=HEALTHY)
def test_of_others_nothing_is_said(levels: tuple[Floats, Floats]) -> None:
    assert found(trained(*levels)) == []


def test_a_mean_grows_as_its_spread_shrinks() -> None:
    assert found(trained(rising(40.0), STEADY, names=("mean", "log_var"))) == []


def test_heads_that_soon_were_so_far_apart_are_told_once() -> None:
    (one,) = found(trained(STEADY, np.where(np.arange(SAMPLES) < 6, 0.05, 40.0)))
    assert "times apart" in one.summary
