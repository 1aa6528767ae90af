"""The mode of layers with running statistics, at the steps whose input goes through them."""

from collections.abc import Iterator

import pytest
from tests.probes.scalars import clean, told
from torch import nn

from diagd.probes import modes
from diagd.probes.box.writer import BoxWriter
from diagd.probes.modes import MODES, SURE


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    modes.forget()
    with clean():
        yield
    modes.forget()


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.BatchNorm1d(4))


def shares(recording: BoxWriter) -> list[tuple[int, float]]:
    series = told(recording).series(0, "mode/statistics")
    return [] if series is None else list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_the_share_in_training_mode_is_told_once_a_step(recording: BoxWriter) -> None:
    model = net()
    modes.look(model, 0)
    model[3].eval()
    modes.look(model, 1)
    model.eval()
    modes.look(model, 2)
    modes.look(model.train(), 2)  # the step's next pass
    assert shares(recording) == [(1, 1.0), (2, 0.5), (3, 0.0)]


def test_after_a_change_a_few_steps_more_are_looked_at(recording: BoxWriter) -> None:
    model = net()
    modes.look(model, 0)
    assert MODES.unsure == 0
    modes.look(model.eval(), 1)
    assert MODES.unsure == SURE
    for step in range(2, 2 + SURE):
        assert MODES.unsure
        modes.look(model, step)
    assert MODES.unsure == 0


def test_another_model_has_layers_of_its_own_and_one_without_any_tells_nothing(recording: BoxWriter) -> None:
    modes.look(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval(), 0)
    modes.look(net().eval(), 1)
    assert shares(recording) == [(2, 0.0)]
