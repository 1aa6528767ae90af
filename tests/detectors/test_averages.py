"""Averages of weights that round their updates away; and copies that are as they are meant to be."""

from collections.abc import Sequence

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job, job

from diagd.daemon.detectors.finding import Severity


def kept(lost: Sequence[float], written: Sequence[float], ranks: Sequence[int] = (0, 1)) -> Job:
    made = job(2).train(0, 1).passes(1.0)
    for rank in ranks:
        steps = range(48, 48 + 24 * len(lost), 24)
        signals(made.state, rank, "average/lost", steps, lost)
        signals(made.state, rank, "average/written", steps, written)
        made.state.signals.put_fact(rank, "average/dtype", 48, "bfloat16")
        made.state.signals.put_fact(rank, "average/names", 48, "Net (copy).enc.weight,Net (copy).enc.bias")
    return made


def test_an_average_that_stands_still_is_named_with_its_dtype() -> None:
    (found,) = kept([0.7, 0.8], [24, 48]).find()
    assert (found.kind, found.severity, found.ranks) == ("precision.underflow", Severity.WARNING, (0, 1))
    assert found.names == ("Net (copy).enc.weight", "Net (copy).enc.bias", "bfloat16")
    assert "80% of its elements stand still though it was written 48 times" in found.summary
    assert kept([0.7, 0.8], [24, 48], (1,)).finds().ranks == (1,)


@pytest.mark.parametrize(("lost", "written"), [
    ([0.9, 0.9], [0, 0]),  # a reference that is meant to stand still
    ([0.9, 0.9], [2, 3]),  # a target that is copied now and then
    ([0.3, 0.4], [24, 48]),
    ([0.9, 0.2], [24, 48]),
    ([0.9], [24]),
])  # fmt: skip
def test_a_copy_that_follows_or_is_not_written_is_quiet(lost: list[float], written: list[float]) -> None:
    assert kept(lost, written).find() == ()
