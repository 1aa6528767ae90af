"""Signals in the rank: written to this rank's own file from the moment it is one, and nowhere else."""

from pathlib import Path

import pytest

from diagd.daemon.agent.signals import SignalReader
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.signals import Signals
from diagd.probes.state import STATE


def told(box: BoxWriter) -> dict[str, list[tuple[int, float]]]:
    news = SignalReader(box.path.with_suffix(".signals"), 0, 1).news()
    assert news is not None
    found: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in zip(news.names, news.steps, news.values, strict=True):
        found.setdefault(news.strings[name], []).append((step, value))
    return found


def test_a_value_belongs_to_the_step_under_way_or_to_the_one_that_is_named(recording: BoxWriter) -> None:
    signals = Signals()
    signals.record("loss", 3.0)
    recording.live[Live.STEP] = 4
    signals.record("loss", 2.0)
    signals.record("loss", 1.0, step=4)
    assert told(recording) == {"loss": [(1, 3.0), (5, 2.0), (4, 1.0)]}


def test_what_is_seen_before_the_process_is_a_rank_is_kept_for_it(recording: BoxWriter) -> None:
    signals = Signals()
    STATE.box, STATE.recording = None, False
    signals.record("lr/0", 0.5)
    signals.fact("scheduler", "StepLR")
    STATE.box, STATE.recording = recording, True
    signals.record("loss", 1.0)
    assert told(recording) == {"lr/0": [(1, 0.5)], "loss": [(1, 1.0)]}
    news = SignalReader(recording.path.with_suffix(".signals"), 0, 1).news()
    assert news is not None
    assert [(news.strings[name], step, news.strings[text]) for name, step, text in news.facts] == [
        ("scheduler", 1, "StepLR")
    ]


def test_another_box_gets_a_file_of_its_own(recording: BoxWriter, tmp_path: Path) -> None:
    signals = Signals()
    signals.record("loss", 1.0)
    other = BoxWriter(tmp_path / "2-1.box")
    STATE.box, STATE.live = other, other.live
    signals.record("loss", 2.0)
    assert (told(recording), told(other)) == ({"loss": [(1, 1.0)]}, {"loss": [(1, 2.0)]})


def test_nothing_is_written_while_the_probes_are_switched_off(recording: BoxWriter) -> None:
    signals = Signals()
    signals.record("loss", 1.0)
    STATE.recording = False
    signals.record("loss", 2.0)
    signals.fact("loss/dtype", "float32")
    assert told(recording) == {"loss": [(1, 1.0)]}


def test_without_room_for_the_file_the_job_goes_on_and_the_rank_says_so(
    recording: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("diagd.probes.signals.SignalWriter", full)
    signals = Signals()
    signals.record("loss", 1.0)
    signals.record("loss", 2.0)
    assert STATE.notes == ["no signals: No space left on device"]
