"""Steps that a script leaves out as their gradients are not finite: told where they are many, and whose they were."""

import math
from collections.abc import Sequence

import pytest
from tests.detectors.scalars import signals
from tests.detectors.test_numerics import found, run

from diagd.daemon.detectors.numerics.began import OWN
from diagd.daemon.detectors.numerics.skipped import LEAST, WINDOW
from diagd.daemon.incidents.catalog import entry

NAN = math.nan


def every(nth: int, count: int = 60) -> list[float]:
    """Norms of which each nth is NaN."""
    return [NAN if step % nth == 0 else 0.5 for step in range(count)]


def told(norms: Sequence[float], name: str = "clip_norm") -> list[tuple[str, str, str]]:
    made = run(2, **{name.replace("/", "__"): norms}, loss=[1.0] * len(norms))
    return [(f.kind, f.severity.value, f.causes[0].key) for f in found(made) if f.kind == "numerics.nonfinite"]


@pytest.mark.parametrize("name", ["clip_norm", "logged/grad_norm"])
@pytest.mark.parametrize(
    ("norms", "many"),
    [
        (every(4), True),
        (every(7), False),
        (every(4, WINDOW - 1), False),  # not enough is known
        ([math.inf] * 16 + [0.5] * 40, False),  # a scaler of the script's own finds its scale
        ([0.5] * 60, False),
    ],
)
def test_many_steps_that_are_left_out_are_told(name: str, norms: list[float], many: bool) -> None:
    assert told(norms, name) == ([("numerics.nonfinite", "warning", "skipped")] if many else [])


def test_where_all_are_left_out_the_last_finite_one_shows_that_there_were_others() -> None:
    assert told([0.5] * 20 + [NAN] * WINDOW) == [("numerics.nonfinite", "warning", "skipped")]


def test_a_gradient_scaler_leaves_steps_out_by_design() -> None:
    made = run(2, clip_norm=every(3), scaler__scale=[1024.0] * 60, loss=[1.0] * 60)
    assert [f for f in found(made) if f.kind == "numerics.nonfinite"] == []


def test_losses_that_are_nan_now_and_then_are_told_as_losses() -> None:
    (finding,) = [f for f in found(run(1, logged__loss=every(3))) if f.kind == "numerics.nonfinite"]
    assert "the loss of rank 0 is NaN or infinite in 1" in finding.summary


def test_the_rank_whose_own_gradients_were_bad_is_named_with_the_parameters() -> None:
    made = run(3, clip_norm=every(3), loss=[1.0] * 60)
    for rank in range(3):
        signals(made.state, rank, OWN, range(7, 10), [2.0 * (rank == 1)] * 3)
    made.state.signals.put_fact(1, OWN, 7, "Net.smooth.weight, Net.smooth.bias")
    (finding,) = [f for f in found(made) if f.kind == "numerics.nonfinite"]
    assert (finding.ranks, finding.step) == ((1,), 1)
    assert "in Net.smooth.weight, Net.smooth.bias" in finding.summary
    assert "not so the other ranks' own gradients" in finding.summary
    assert "Net.smooth.weight" in finding.names
    assert entry(finding.kind).fix(finding.causes[0].key).as_json()["action"].startswith("Look at what these batches")


def test_where_one_ranks_own_gradients_were_not_looked_at_none_is_singled_out() -> None:
    made = run(3, clip_norm=every(3), loss=[1.0] * 60)
    signals(made.state, 1, OWN, [7], [2.0])
    (finding,) = [f for f in found(made) if f.kind == "numerics.nonfinite"]
    assert finding.ranks == (0, 1, 2)


def test_passes_of_such_steps_are_not_called_cleared_between_micro_batches() -> None:
    lost = [0.8] * 20
    assert [f.kind for f in found(run(1, gradients__discarded=lost))] == ["training.gradient_accumulation"]
    kinds = [f.kind for f in found(run(1, gradients__discarded=lost, clip_norm=every(2)))]
    assert kinds == ["numerics.nonfinite"]


def test_few_are_not_many_however_short_the_window_seems() -> None:
    assert told([0.5] * (WINDOW - LEAST + 1) + [NAN] * (LEAST - 1)) == []
