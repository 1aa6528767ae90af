"""Equal gradients that ranks clip to different norms, or that only some clip; and what parts weights otherwise."""

from collections.abc import Sequence

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import Job
from tests.detectors.tensors import Content, only, own, same, training

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.state.tensors import TensorInfo

DDP = TensorInfo("Net.a.weight", shape=(4, 4), placement="ddp", peers=(0, 1, 2))
BEGAN: Content = lambda rank, step: own(rank, step) if step else 7  # noqa: E731
WIDE, NARROW, NORMS = [1.0] * 90, [0.25] * 90, [2.0 + 0.01 * step for step in range(90)]


def clips(*limits: Sequence[float], content: Content = BEGAN, norms: Sequence[Sequence[float]] = (NORMS,) * 3) -> Job:
    made = training({DDP: content})
    for rank, (limit, norm) in enumerate(zip(limits, norms, strict=True)):
        signals(made.state, rank, "grad_norm", range(1, 91), [min(one, 1.0) for one in norm])
        if limit:
            signals(made.state, rank, "clip_norm/limit", range(1, len(limit) + 1), limit)
            signals(made.state, rank, "clip_norm", range(1, 91), norm)
    return made


def test_a_rank_that_clips_to_another_norm_is_named_with_both() -> None:
    found = clips(WIDE, NARROW, WIDE).finds()
    assert (found.kind, found.ranks, found.severity) == ("divergence.gradient", (1,), Severity.CRITICAL)
    assert (found.causes[0].key, found.names) == ("limits", ("clip_grad_norm_", "max_norm"))
    assert "(1 on ranks 0,2, 0.25 on rank 1), since step 1." in found.summary


def test_one_that_changes_its_limit_later_is_dated() -> None:
    found = clips(WIDE, WIDE[:30] + NARROW[30:], WIDE, content=only(1, since=33)).finds()
    assert (found.causes[0].key, found.step) == ("limits", 31)


def test_a_rank_that_alone_does_not_clip_is_named() -> None:
    found = clips(WIDE, WIDE, []).finds()
    assert (found.ranks, found.causes[0].key) == ((2,), "limits")
    assert "(1 on ranks 0,1, none on rank 2)" in found.summary


@pytest.mark.parametrize("made", [
    clips(WIDE, WIDE, WIDE),
    clips(WIDE, NARROW[:1] + WIDE[1:], WIDE),
    clips(WIDE, WIDE[:60] + NARROW[60:], WIDE),  # weights are apart long before
    clips(WIDE, NARROW, WIDE, norms=(NORMS, [2 * one for one in NORMS], NORMS)),  # not the same gradients
    clips(WIDE[:1], [], []),
    clips([1e9] * 90, [], []),  # it is called for what it returns
    clips([float("inf")] * 90, [], []),
    clips([100.0] * 90, [50.0] * 90, [100.0] * 90),  # neither is ever reached
])  # fmt: skip
def test_weights_that_part_by_something_else_are_not_put_down_to_it(made: Job) -> None:
    assert "limits" not in {cause.key for found in made.find() for cause in found.causes}


def test_where_the_weights_stay_equal_nothing_is_said() -> None:
    assert not clips(WIDE, NARROW, WIDE, content=same).find()
