"""More backward passes to a step, whose losses are added up."""

import pytest
from tests.detectors.test_numerics import noisy, run

from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.numerics.undivided import undivided
from diagd.daemon.detectors.scene import scene_of

AT = 41


def found(
    *, passes: tuple[float, float] = (1, 8), norm: float = 7.0, loss: float = 0.4, rate: float = 0.1
) -> list[Finding]:
    """After forty steps another number of passes, and this norm of gradients, loss and learning rate."""
    made = run(
        2, grad_norm=[*noisy([1.0] * 40), *noisy([norm] * 40)], loss=[*noisy([0.2] * 40), *noisy([loss] * 40)],
        lr__0=[0.1] * 40 + [rate] * 40,
    )  # fmt: skip
    for rank in range(2):
        made.state.signals.put(rank, "gradients/passes", [1, AT], list(passes))
    return list(undivided(scene_of(made.state)))


def test_it_is_told_with_the_step_where_the_loss_is_worse_off() -> None:
    (one,) = found()
    assert (one.kind, one.ranks, one.step) == ("training.gradient_accumulation", (0, 1), AT)
    assert one.causes[0].key == "undivided"
    assert "8 backward passes a step since step 41, where it was 1" in one.summary


@pytest.mark.parametrize(
    "healthy",
    [
        {"norm": 1.1},  # averaged
        {"loss": 0.2},  # and if it is added up, that does no harm
        {"rate": 0.0125},  # the rate was divided instead
        {"passes": (8, 1)},
        {"passes": (4, 6)},
    ],
)
def test_what_is_averaged_or_meant_is_no_fault(healthy: dict[str, float]) -> None:
    assert found(**healthy) == []  # type: ignore[arg-type]
