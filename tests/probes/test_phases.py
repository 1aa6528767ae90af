"""The phase: which one wins, and whose thread counts."""

import threading

import pytest

from diagd.probes import phase, phases
from diagd.probes.box.layout import Live, Phase
from diagd.probes.box.writer import BoxWriter
from diagd.probes.native import load
from diagd.probes.state import STATE


@pytest.fixture(params=["python", "native"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    native = load.library()
    if request.param == "native" and native is not None:
        monkeypatch.setattr(phases, "enter", native.enter(phases.enter_in_python))
    else:
        monkeypatch.setattr(phases, "enter", phases.enter_in_python)


def now(box: BoxWriter) -> Phase:
    return Phase(box.live[Live.PHASE])


def test_a_script_can_name_its_phase_and_gets_the_old_one_back(recording: BoxWriter) -> None:
    phases.enter(Phase.FORWARD)
    with phase("checkpoint"):
        assert now(recording) is Phase.CHECKPOINT
        phases.enter(Phase.DATA)  # what a probe thinks does not count meanwhile
        assert phases.begin_collective(1) is None
        assert now(recording) is Phase.CHECKPOINT
        with phase("eval"):
            assert now(recording) is Phase.CHECKPOINT
    assert now(recording) is Phase.FORWARD


def test_the_old_phase_comes_back_also_after_an_exception(recording: BoxWriter) -> None:
    with pytest.raises(KeyError), phase("other"):
        raise KeyError
    assert now(recording) is Phase.INIT
    assert STATE.held == 0


@pytest.mark.parametrize("name", ["training", "", "Check point"])
def test_an_unknown_phase_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match="expected one of init, data, forward"), phase(name):
        pass


def test_it_can_decorate_a_function_and_does_nothing_without_diagd() -> None:
    @phase("eval")
    def evaluate() -> int:
        return 5

    assert evaluate() == 5


def test_another_thread_has_no_say(recording: BoxWriter) -> None:
    def save() -> None:
        phases.enter(Phase.CHECKPOINT)
        with phase("checkpoint"):
            pass

    thread = threading.Thread(target=save)
    thread.start()
    thread.join()
    assert now(recording) is Phase.INIT


def test_the_time_of_a_phase_is_when_it_was_entered(recording: BoxWriter) -> None:
    phases.enter(Phase.DATA)
    first = recording.live[Live.PHASE_NS]
    phases.enter(Phase.DATA)
    assert recording.live[Live.PHASE_NS] == first > 0


@pytest.mark.parametrize("kept", [Phase.BACKWARD, Phase.CHECKPOINT])
def test_a_blocking_operation_shows_except_where_more_is_known(recording: BoxWriter, kept: Phase) -> None:
    phases.enter(Phase.FORWARD)
    before = phases.begin_collective(7)
    assert (before, now(recording), recording.live[Live.PHASE_NS]) == (Phase.FORWARD, Phase.COLLECTIVE, 7)
    assert before is not None
    phases.end_collective(before, 9)
    assert (now(recording), recording.live[Live.PHASE_NS]) == (Phase.FORWARD, 9)
    phases.enter(kept)
    assert phases.begin_collective(11) is None
    assert now(recording) is kept


def test_the_time_in_each_phase_adds_up(recording: BoxWriter) -> None:
    live = recording.live
    phases.enter(Phase.FORWARD)
    live[Live.PHASE_NS] = 1_000
    forward, collective = live[Live.PHASE_TOTALS + Phase.FORWARD], live[Live.PHASE_TOTALS + Phase.COLLECTIVE]
    before = phases.begin_collective(5_000)
    assert before is not None
    phases.end_collective(before, 12_000)
    assert live[Live.PHASE_TOTALS + Phase.FORWARD] - forward == 4_000
    assert live[Live.PHASE_TOTALS + Phase.COLLECTIVE] - collective == 7_000
    assert live[Live.PHASE_NS] == 12_000
