"""A schedule that some ranks step and others do not."""

import pytest
from tests.detectors.scalars import signals
from tests.detectors.states import job

from diagd.daemon.detectors import models
from diagd.daemon.detectors.scene import scene_of
from diagd.daemon.detectors.schedules import stepped_by_some


@pytest.mark.parametrize(("counts", "kinds", "said"), [
    ((0, 64), "AA", (0,)),
    ((64, 0, 0), "AAA", (1, 2)),
    ((0, 0), "AA", ()),
    ((0, 12), "AA", ()),  # they may stand at different places of an epoch
    ((60, 64), "AA", ()),
    ((0, 64), "AB", ()),  # one of them may have been made for its rates alone
])  # fmt: skip
def test_a_schedule_that_only_some_stages_step(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...], kinds: str, said: tuple[int, ...]
) -> None:
    made = job(len(counts))
    for rank, (times, kind) in enumerate(zip(counts, kinds, strict=True)):
        signals(made.state, rank, "lr/scheduled", [1, 65, 129 + 64 * rank], [0, times, 2 * times])
        made.state.signals.put_fact(rank, "lr/scheduler", 1, f"Lambda{kind}")
    found = list(stepped_by_some(scene_of(made.report().state)))
    assert [(f.kind, f.ranks, f.severity.value) for f in found] == (
        [("divergence.step", said, "warning")] if said else []
    )
    monkeypatch.setattr(models.Models, "replicas", [set(range(len(counts)))])  # copies: their rates tell
    assert not list(stepped_by_some(scene_of(made.report().state)))
    assert all("64 times" in f.summary and f.causes[0].key == "schedule" and f.step == 65 for f in found)
