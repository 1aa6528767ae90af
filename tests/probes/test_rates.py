"""What a scheduler says of itself when it is made, also before the process is a rank."""

from collections.abc import Iterator

import pytest
import torch
from tests.probes.scalars import clean, told
from torch import nn

from diagd.probes import rates
from diagd.probes.box.writer import BoxWriter
from diagd.probes.guard import Probe


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with clean():
        rates.install(Probe("rates", 0, always=True), torch.optim.lr_scheduler)
        yield
        rates.remove()


def test_a_scheduler_is_told_with_how_far_it_goes(recording: BoxWriter) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
    assert told(recording).fact(0, "lr/scheduler") == (1, "StepLR step_size=10 gamma=0.5")
    site = told(recording).fact(0, "lr/scheduler/site")
    assert site is not None
    assert site[1].split("\t")[::2] == [__file__, "test_a_scheduler_is_told_with_how_far_it_goes"]
    torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[9, 3])
    assert told(recording).fact(0, "lr/scheduler") == (1, "MultiStepLR milestones=[3, 9] gamma=0.1")
    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7)
    assert told(recording).fact(0, "lr/scheduler") == (1, "CosineAnnealingLR T_max=7 eta_min=0.0")


def test_schedulers_do_what_they_did(recording: BoxWriter) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.05]
    assert isinstance(schedule, torch.optim.lr_scheduler.LRScheduler)


def test_how_often_a_scheduler_was_stepped_is_told_now_and_then(recording: BoxWriter) -> None:
    rates.SCHEDULERS.__init__()  # type: ignore[misc]
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=4)
    mine = rates.Rates()
    for step in range(1, 140):
        mine.before_step(optimizer, step)
        if step == 70:
            schedule.step()
            schedule.step()
    series = told(recording).series(0, "lr/scheduled")
    assert series is not None
    assert (series.steps.tolist(), series.values.tolist()) == ([64, 128], [0.0, 2.0])
    initial = told(recording).series(0, "lr/initial")
    assert initial is not None
    assert initial.values[-1] == 0.1


def test_a_cycle_is_told_with_the_rate_that_it_leads_up_to(recording: BoxWriter) -> None:
    rates.SCHEDULERS.__init__()  # type: ignore[misc]
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    _ = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=100)
    rates.Rates().before_step(optimizer, 64)
    initial = told(recording).series(0, "lr/initial")
    assert initial is not None
    assert initial.values.tolist() == [0.5]


@pytest.mark.parametrize(("whose", "times", "orphaned"), [
    ("another", 9, 1.0), ("another", 3, 0.0), ("mine", 9, 0.0), ("both", 9, 0.0),
])  # fmt: skip
def test_schedulers_of_optimizers_that_never_step_are_told(
    recording: BoxWriter, whose: str, times: int, orphaned: float
) -> None:
    rates.SCHEDULERS.__init__()  # type: ignore[misc]
    mine, another = (torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1) for _ in range(2))
    held = {"mine": [mine], "another": [another], "both": [mine, another]}[whose]
    schedules = [torch.optim.lr_scheduler.StepLR(one, 3) for one in held]
    kept = rates.Rates()
    for step in range(1, 70):
        kept.before_step(mine, step)
        for schedule in schedules if step <= times else ():
            schedule.step()
    series = told(recording).series(0, "lr/orphaned")
    assert series is not None
    assert series.values.tolist() == [orphaned]
