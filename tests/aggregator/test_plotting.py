"""Which series a report shows, and how few points of them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.aggregator.fakes import incident
from tests.detectors.memories import Run, flat, leak
from tests.detectors.scalars import signals
from tests.detectors.states import job

from diagd.daemon.aggregator.plotting import MAX_LINES, MAX_POINTS, plots_of
from diagd.daemon.detectors.growth import MIB
from diagd.daemon.state.job import JobState


def trained(ranks: int = 2, steps: int = 40) -> JobState:
    state = job(ranks).state
    for rank in range(ranks):
        signals(state, rank, "loss", range(1, steps + 1), [2.0 / step for step in range(1, steps + 1)])
        signals(state, rank, "logged/kl", range(1, steps + 1), [0.0] * steps)
    return state


def test_a_healthy_run_shows_what_each_run_is_judged_by() -> None:
    (plot,) = plots_of(trained(), ())
    assert (plot["title"], [line["label"] for line in plot["series"]]) == ("loss", ["rank 0", "rank 1"])
    assert plot["series"][0]["steps"][:2] == [1, 2]


def test_what_an_incident_names_comes_first_with_its_step_marked() -> None:
    found = replace(incident(), names=("kl",), step=20, kind="training.kl_zero")
    plots = plots_of(trained(), (found,))
    assert [plot["title"] for plot in plots] == ["kl", "loss"]
    assert plots[0]["marks"] == [{"step": 20, "label": "training.kl_zero"}]


def test_of_many_ranks_the_culprits_are_shown() -> None:
    found = replace(incident(), names=("loss",), ranks=(9,), step=3)
    (plot,) = plots_of(trained(12), (found,))
    labels = [line["label"] for line in plot["series"]]
    assert len(labels) == MAX_LINES
    assert "rank 9" in labels


def test_a_long_series_keeps_its_peaks_and_its_first_value_that_is_not_finite() -> None:
    values = np.full(5000, 1.0)
    values[1234], values[2345], values[4000:4100] = 50.0, -3.0, math.nan
    state = job(1).state
    signals(state, 0, "loss", range(1, 4001), values[:4000])
    signals(state, 0, "loss", range(4001, 4091), values[4000:4090])
    (line,) = plots_of(state, ())[0]["series"]
    assert len(line["steps"]) <= MAX_POINTS * 3 // 2
    assert {50.0, -3.0, None} <= set(line["values"])
    assert line["steps"] == sorted(line["steps"])


def test_memory_that_leaks_is_drawn_on_until_it_is_full() -> None:
    run = Run(2, 200).tells(0, "memory/rss", leak(200, 2.0)).tells(1, "memory/rss", flat(200))
    run.tells(0, "memory/available", np.array([100.0 * MIB]))
    found = replace(incident(), names=("rss",), ranks=(0,), step=20, kind="memory.host_leak")
    (plot,) = plots_of(run.state, (found,))
    ((line),) = plot["forecasts"]
    assert line["label"] == "rank 0"
    assert (line["steps"][0], line["steps"][1] - line["steps"][0]) == (200, pytest.approx(50, abs=3))
    assert line["values"][1] - line["values"][0] == pytest.approx(100 * MIB, rel=0.05)
    run.state.signals.put(0, "memory/available", [201], [1e15])  # room for ever: as far ahead as it has grown
    (line,) = plots_of(run.state, (found,))[0]["forecasts"]
    assert 100 < line["steps"][1] - line["steps"][0] < 200
    other = replace(found, kind="training.loss_spike")
    assert plots_of(run.state, (other,))[0]["forecasts"] == []


def test_plots_are_json() -> None:
    state = trained()
    signals(state, 0, "loss", [41, 42], [math.inf, math.nan])
    json.loads(json.dumps(plots_of(state, ()), allow_nan=False))
