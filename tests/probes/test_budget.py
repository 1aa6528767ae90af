"""The budget of what is sampled: fed by steps, never above what it keeps, honest about what it refuses."""

import pytest

from diagd.probes import budget
from diagd.probes.box.layout import Live
from diagd.probes.box.writer import BoxWriter
from diagd.probes.budget import Budget
from diagd.probes.state import STATE

MS = 1_000_000


def trained(steps: int, step_ms: float, part: Budget | None = None, from_ns: int = 0) -> Budget:
    """A budget after so many steps; one that has spent what it began with, unless another is given."""
    if part is None:
        part = Budget()
        part.spent(budget.START_NS)
    for number in range(steps + 1):
        step_to(part, number, from_ns + int((1 + number) * step_ms * MS))
    return part


def step_to(part: Budget, step: int, now_ns: int) -> None:
    """A step is over, and somebody asks."""
    STATE.live[Live.STEP] = step
    CLOCK.now_ns = now_ns
    part.affords(0)
    STATE.live[Live.SAMPLES_LEFT_OUT] = 0


class CLOCK:
    now_ns = 0


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_now", lambda: CLOCK.now_ns)


def affordable(part: Budget, most_ns: int) -> int:
    """The longest work that is allowed, to a hundredth of it."""
    return max((ns for ns in range(most_ns // 100, most_ns + 1, most_ns // 100) if part.affords(ns)), default=0)


def test_a_start_can_afford_the_first_samples(recording: BoxWriter) -> None:
    part = Budget()
    assert part.affords(budget.START_NS)
    part.spent(budget.START_NS)
    assert not part.affords(1)


def test_steps_feed_their_part(recording: BoxWriter) -> None:
    part = trained(steps=20, step_ms=25)  # of 500 ms 0.4 %
    assert affordable(part, 4 * MS) == pytest.approx(2 * MS, abs=0.05 * MS)


def test_all_work_together_stays_within_the_part(recording: BoxWriter) -> None:
    part, done = trained(0, 25), 0
    for step in range(1, 2001):
        step_to(part, step, (1 + step) * 25 * MS)
        for ns in (3 * MS, MS // 2):
            if part.affords(ns):
                part.spent(ns)
                done += ns
    assert 0.8 * budget.PART <= done / (2000 * 25 * MS) <= budget.PART


def test_no_burst_is_longer_than_half_a_step_however_long_nothing_was_sampled(recording: BoxWriter) -> None:
    part = trained(steps=10_000, step_ms=50)
    assert affordable(part, 100 * MS) == pytest.approx(20 * MS, abs=1 * MS)


def test_a_pause_between_steps_is_not_saved_up(recording: BoxWriter) -> None:
    part = trained(steps=200, step_ms=50)
    step_to(part, 201, 3600 * 1000 * MS)
    step_to(part, 202, 3600 * 1000 * MS + 50 * MS)
    assert affordable(part, 1000 * MS) <= 30 * MS


def test_short_steps_can_pay_for_something_in_the_end(recording: BoxWriter) -> None:
    part = trained(steps=2000, step_ms=1)
    assert affordable(part, 10 * MS) == budget.LEAST_NS


def test_a_first_time_that_took_long_does_not_end_all_sampling(recording: BoxWriter) -> None:
    part = trained(steps=100, step_ms=50)
    part.spent(60_000 * MS)
    assert not part.affords(0)
    trained(steps=210, step_ms=50, part=part, from_ns=100 * 50 * MS)
    assert part.affords(15 * MS)


def test_what_was_spent_counts_as_overhead_and_what_was_refused_is_counted(recording: BoxWriter) -> None:
    part = Budget()
    part.spent(budget.START_NS)
    assert recording.live[Live.OVERHEAD_NS] == budget.START_NS
    for _ in range(3):
        assert not part.affords(MS)
    assert recording.live[Live.SAMPLES_LEFT_OUT] == 3
    assert STATE.notes == []


def test_work_that_can_never_be_afforded_is_said_once(recording: BoxWriter) -> None:
    part = trained(steps=50, step_ms=10)
    for _ in range(2):
        assert not part.affords(50 * MS)
    assert [note.partition(":")[0] for note in STATE.notes] == ["left out to stay within the budget"]


def test_where_nothing_is_recorded_nothing_is_sampled_fed_or_counted(recording: BoxWriter) -> None:
    part = trained(steps=0, step_ms=25)
    STATE.recording = False
    for step in range(2, 100):
        step_to(part, step, step * 25 * MS)
    assert not part.affords(0)
    assert recording.live[Live.SAMPLES_LEFT_OUT] == 0
    STATE.recording = True
    assert not part.affords(1)


def test_regular_samples_are_rarer_while_they_cost_too_much_and_come_back(recording: BoxWriter) -> None:
    part, strides = Budget(), []
    for spent in (5, 9, 11, 30, 30, 5, 3, 3, 3):
        assert part.widen(spent, 10)
        strides.append(part.stride)
    assert strides == [1, 1, 2, 4, 8, 8, 4, 2, 1]
    assert recording.live[Live.SAMPLE_STRIDE] == 1


def test_beyond_a_stride_small_things_rest_too_at_steps_that_nest(recording: BoxWriter) -> None:
    part, done = Budget(), []
    for part.stride in (4, 8, 16, 32, 128):
        done.append({step for step in range(64) if not part.rests(step)})
    assert [len(steps) for steps in done] == [64, 32, 16, 8, 2]
    assert done[4] < done[3] < done[2] < done[1]


def test_far_over_the_budget_they_get_rarer_faster(recording: BoxWriter) -> None:
    part = Budget()
    strides = []
    for _ in range(5):
        part.widen(31, 10)
        strides.append(part.stride)
    assert strides == [4, 16, 64, budget.MAX_STRIDE, budget.MAX_STRIDE]
    assert [note for note in STATE.notes if "samples" in note] == [
        f"to stay within the budget, samples are taken at one of {budget.MAX_STRIDE} steps"  # the one that holds
    ]


def test_when_samples_can_get_no_rarer_that_is_said(recording: BoxWriter) -> None:
    part = Budget()
    assert [part.widen(30, 10) for _ in range(9)] == [True] * 7 + [False] * 2
    assert part.stride == budget.MAX_STRIDE
