"""What a real script under `diagd run` logs, as the aggregator knows it."""

import sys
from pathlib import Path

import pytest
from tests.live.job import LiveJob

from diagd.daemon.aggregator.replay import replay
from diagd.daemon.state.metrics_names import find, resolution
from diagd.daemon.state.signals import SignalBook

JOB = Path(__file__).parent / "jobs" / "lg_prints_and_writes.py"
STEPS = 60

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def test_what_a_script_writes_and_prints_is_known_as_exactly_as_it_can_be(tmp_path: Path) -> None:
    record = tmp_path / "job.rec"
    with LiveJob([sys.executable, JOB.name], [JOB], flags=["--record", str(record)]) as job:
        assert job.finish(180.0) == 0, job.tail()
        assert [line for line in job.stdout.splitlines() if line.startswith("step ")][-1].startswith(
            "step 59/60 | loss "
        )
    *_, (state, _) = replay(record)
    assert find(state, 0, "kl") == ("logged/kl",)
    assert resolution(state, 0, "logged/kl") == 0.0
    assert resolution(state, 0, "logged/entropy") == 0.5e-2
    kl, entropy = values(state.signals, "kl"), values(state.signals, "entropy")
    assert kl[STEPS - 1] == 1e-3 / STEPS  # and not 0.00
    assert len(kl) >= 0.9 * STEPS
    assert entropy[STEPS - 1] == 14.75


def values(signals: SignalBook, name: str) -> dict[int, float]:
    series = signals.series(0, f"logged/{name}")
    assert series is not None
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
