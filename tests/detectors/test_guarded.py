"""Steps that a script leaves out, and the scaler's update with them."""

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import job

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.guarded import guarded
from diagd.daemon.detectors.scene import scene_of

GROWS = [2.0 ** (14 + step // 8) for step in range(50)]


@pytest.mark.parametrize(("scale", "skipped", "parts", "told"), [
    (GROWS, 0.0, [0.5, 0.9, 0.9, 0.95], True),
    ([*GROWS[:-1], GROWS[0]], 0.0, [0.5, 0.9, 0.9, 0.95], False),  # it comes down
    (GROWS, 1.0, [0.5, 0.9, 0.9, 0.95], False),  # the scaler skips by itself
    (GROWS, 0.0, [0.5, 0.9, 0.9, 0.0], False),
    ([2.0**14] * 50, 0.0, [0.5, 0.9, 0.9, 0.95], False),  # batches that are left out for another reason
    (GROWS, 0.0, [0.5, 0.5, 0.5], False),  # one now and then
])  # fmt: skip
def test_a_scale_that_only_grows_while_steps_are_left_out(
    scale: list[float], skipped: float, parts: list[float], told: bool
) -> None:
    made = job(2)
    for rank in range(2):
        signals(made.state, rank, "scaler/scale", range(1, 51), scale)
        signals(made.state, rank, "scaler/skipped", range(1, 51), [0.0] * 49 + [skipped])
        signals(made.state, rank, "gradients/discarded", range(40, 40 + len(parts)), parts)
        signals(made.state, rank, "gradients/passes", [1, 40, 41, 42, 43], [1.0, 2.0, 10.0, 10.0, 20.0])
    found = [(one.kind, one.severity, one.ranks) for one in guarded(scene_of(made.state))]
    assert found == ([("precision.overflow", Severity.WARNING, (0, 1))] if told else [])
