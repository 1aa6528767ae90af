"""Float16 that runs out of range, by the graph of the loss, by outputs that rise, and by the scaler."""

from collections.abc import Mapping, Sequence

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job, job

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.overflow import overflow
from diagd.daemon.detectors.scene import scene_of

Scalars = Mapping[str, Sequence[float]]
INF, NAN = float("inf"), float("nan")


def told(series: Scalars, every: int = 1) -> Job:
    made = job(1)
    for name, values in series.items():
        signals(made.state, 0, name, range(1, 1 + every * len(values), every), values)
    return made


def find(made: Job) -> list[Finding]:
    return list(overflow(scene_of(made.state)))


def scaler(skipped: Sequence[int], start: float = 65536.0) -> Scalars:
    """A scaler that halves its scale at each skipped step."""
    scale, scales = start, []
    for one in skipped:
        scale *= 0.5 if one else 1.0
        scales.append(scale)
    return {"scaler/skipped": [float(one) for one in skipped], "scaler/scale": scales}


def test_a_product_beyond_the_end_is_named_by_its_module_and_step() -> None:
    made = told({"overflow/value": [69456.0]})
    made.state.signals.put_fact(0, "overflow/at", 1, "Bmm\tfloat16\tEncoder.attn2.qkv.weight,Encoder.attn2.qkv.bias")
    (found,) = find(made)
    assert (found.kind, found.severity, found.ranks) == ("precision.overflow", Severity.CRITICAL, (0,))
    assert found.names == ("Encoder.attn2.qkv", "float16", "inf")
    assert "69456" in found.summary


def test_an_output_that_becomes_inf_after_finite_ones_is_told_and_a_mask_is_not() -> None:
    rising = {"forward/absmax/Net.score": [900.0, 8000.0, 41000.0, INF], "forward/absmax/Net.mask": [INF] * 4}
    (found,) = find(told(rising, every=16))
    assert (found.names[0], found.step) == ("Net.score", 49)
    assert find(told({"forward/absmax/Net.mask": [INF] * 4})) == []


@pytest.mark.parametrize(
    ("values", "step"),
    [([9.0, 8.0, INF, INF, INF], 33), ([9.0, 8.0, INF, 7.0, INF], 33), ([9.0, 8.0, INF, 7.0], None),
     ([9.0, INF, INF], None), ([9.0, 8.0, NAN, INF], None)],
)  # fmt: skip
def test_an_output_that_stays_inf_stays_told_with_the_step_at_which_it_became_so(
    values: Sequence[float], step: int | None
) -> None:
    found = find(told({"forward/absmax/Net.power": values}, every=16))
    assert [one.step for one in found] == ([] if step is None else [step])
    assert all("after 8 in step 17" in one.summary for one in found)


def test_outputs_that_rise_towards_the_end_are_a_warning_before_anything_is_lost() -> None:
    (found,) = find(told({"forward/absmax/Net.head": [9000.0, 20000.0, 45000.0], "forward/absmax/Net.body": [3.0] * 3}))
    assert (found.severity, found.names[0]) == (Severity.WARNING, "Net.head")


@pytest.mark.parametrize(
    ("skipped", "severity"),
    [
        (scaler([0] * 60 + [1] * 20), Severity.CRITICAL),
        (scaler([1] * 17), Severity.CRITICAL),
        (scaler([0] * 10 + [0, 1] * 20, 2.0**40), Severity.WARNING),
    ],
    ids=["collapse", "from the start", "half of them"],
)
def test_a_scaler_that_goes_on_skipping_is_told(skipped: Scalars, severity: Severity) -> None:
    (found,) = find(told(skipped))
    assert (found.names[0], found.severity) == ("grad_scaler", severity)


def test_a_fused_optimizer_leaves_steps_out_by_itself_and_the_scale_tells() -> None:
    falling = {**scaler([0] * 30 + [1] * 25), "scaler/skipped": [0.0] * 55}
    (found,) = find(told(falling))
    assert (found.names[0], found.severity) == ("grad_scaler", Severity.CRITICAL)


HEALTHY: dict[str, Scalars] = {
    "finds its level at first": scaler([1] * 12 + [0] * 100, 2.0**28),
    "is still finding it": scaler([1] * 14, 2.0**28),
    "grows and skips every tenth step": scaler(([0] * 9 + [1]) * 12, 2.0**30),
    "a few bad batches": scaler([0] * 80 + [1] * 5 + [0] * 10),
    "a low scale that holds": scaler([1] * 15 + [0] * 30),
    "clamped below the end": {"forward/absmax/T5.block": [64504.0] * 6},
    "large from the start": {"forward/absmax/Net.head": [40000.0, 39000.0, 41000.0, 40500.0]},
    "rises far from the end": {"forward/absmax/Net.head": [10.0, 100.0, 1000.0, 9000.0]},
    "NaN, of whatever origin": {"forward/absmax/Net.head": [3.0, 4.0, NAN]},
}


@pytest.mark.parametrize("series", HEALTHY.values(), ids=HEALTHY)
def test_of_other_trainings_nothing_is_said(series: Scalars) -> None:
    assert find(told(series)) == []


@pytest.mark.parametrize(("scale", "lost"), [
    ([65536.0] * 20 + [2.0**e for e in range(15, -25, -1)], True),
    ([65536.0] * 20 + [2.0**e for e in range(15, -25, -1)] + [2.0**-24] * 30, True),  # an end of its own
    ([65536.0] * 20 + [2.0**e for e in range(15, 0, -1)] + [2.0] * 30, False),  # it has found its level
    ([2.0**-16] * 60, False),  # it never was more
    ([65536.0] * 60, False),
])  # fmt: skip
def test_of_a_log_the_scale_alone_tells(scale: Sequence[float], lost: bool) -> None:
    found = find(told({"scaler/scale": scale}, every=5))
    assert [(f.kind, f.severity) for f in found] == [("precision.overflow", Severity.CRITICAL)] * lost
