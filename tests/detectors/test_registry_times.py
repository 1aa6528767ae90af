"""How often the job is judged: its progress at each look, what training computes less often while it runs."""

import pytest
from tests.detectors.training import Training

from diagd.daemon.detectors import registry
from diagd.daemon.detectors.finding import Basis, Cause, Finding, Severity
from diagd.daemon.detectors.registry import detect
from diagd.daemon.detectors.scene import Scene


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When training was judged."""
    found: list[float] = []

    def rule(scene: Scene) -> list[Finding]:
        found.append(scene.state.now_s)
        cause = Cause("loss", "because", 0.9, Basis.OBSERVATION, ())
        return [Finding("training.loss_spike", Severity.WARNING, (0,), "It spiked.", causes=(cause,))]

    monkeypatch.setattr(registry, "OF_TRAINING", (rule,))
    return found


def running() -> Training:
    training = Training(2).goes(8)
    training.find()
    return training


def test_what_was_found_stands_until_it_is_looked_at_again(looks: list[float]) -> None:
    training = running()
    training.state.look_again_s = 2.0
    looks.clear()
    training.state.looked = None
    began = training.state.now_s
    for passed in (0.0, 0.5, 1.9, 2.1, 3.0, 4.2):
        training.state.now_s = began + passed
        assert [f.kind for f in detect(training.state)] == ["training.loss_spike"]
    assert [round(at - began, 1) for at in looks] == [0.0, 2.1, 4.2]


def test_without_a_rule_on_that_each_look_is_one(looks: list[float]) -> None:
    training = running()
    looks.clear()
    detect(training.state)
    detect(training.state)
    assert len(looks) == 2


def test_when_the_job_is_over_all_is_looked_at(looks: list[float]) -> None:
    training = running()
    training.state.look_again_s = 2.0
    detect(training.state)
    looks.clear()
    training.state.ended_s = training.state.now_s
    detect(training.state)
    assert len(looks) == 1


@pytest.mark.parametrize("said", [False, True])
def test_a_job_of_which_nothing_is_said_is_looked_at_half_as_often_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, looks: list[float], said: bool
) -> None:
    training = running()
    training.state.look_again_s = 2.0

    def silent(scene: Scene) -> tuple[Finding, ...]:
        looks.append(scene.state.now_s)
        return ()

    if not said:
        monkeypatch.setattr(registry, "OF_TRAINING", (silent,))
    for began, times in ((30.0, 3), (90.0, 3 if said else 2)):
        training.state.looked = None
        looks.clear()
        for passed in (0.0, 2.1, 4.2):
            training.state.now_s = training.state.started_s + began + passed
            detect(training.state)
        assert len(looks) == times
