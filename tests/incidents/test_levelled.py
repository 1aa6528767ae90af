"""Growth that has stopped is over once that was seen; growth that goes on, or is not seen any more, is not."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors.memories import BASE, MIB, Run, flat, leak, noise

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.growth import Floats
from diagd.daemon.incidents.book import IncidentBook
from diagd.daemon.incidents.levelled import levelled

TEXT = "rank 0 grows by 2.0 MiB a step since step 11, 200 MiB so far; at this pace memory runs out in about 900 steps"
LEAK = Finding("memory.host_leak", Severity.WARNING, (0,), TEXT, (), step=11, sure=True, goes_on=True, key="rss")


def filled(until: int, steps: int) -> Floats:
    """A pool that is filled up to a step."""
    grown = np.minimum(np.arange(steps), until) * 2.0 * MIB
    return np.asarray(BASE + grown + noise(np.random.default_rng(0), steps), np.float64)


def seen(run: Run, *, finding: Finding = LEAK) -> IncidentBook:
    """Told once, and not found at the next look."""
    book, state = IncidentBook(), run.state
    book.update([finding], state)
    state.tick(state.now_s + 1.0)
    book.update([], state)
    return book


def test_a_pool_that_is_full_resolves_its_incident_and_takes_the_forecast_back() -> None:
    (one,) = seen(Run(1, 200).holds(0, filled(100, 200))).incidents
    assert not one.is_open
    said, _, end = one.summary.partition("; level since step ")
    assert said == "rank 0 grows by 2.0 MiB a step since step 11, 200 MiB so far"
    since, _, rest = end.partition(", ")
    assert int(since) == pytest.approx(101, abs=4)
    assert rest.endswith(" steps by now")


def test_it_is_over_also_where_the_job_ends_then() -> None:
    run = Run(1, 200).holds(0, filled(100, 200))
    book = IncidentBook()
    book.update([LEAK], run.state)
    run.state.end(0, run.state.now_s + 1.0)
    book.update([], run.state)
    assert [one.is_open for one in book.incidents] == [False]


@pytest.mark.parametrize("floors", [
    leak(200, 2.0),
    filled(190, 200),  # too early to say
    np.concatenate([filled(100, 160), leak(40, 2.0, base=BASE + 200 * MIB)]),  # it paused
    np.concatenate([filled(100, 160), np.full(60, BASE)]),  # what was freed is another matter
])  # fmt: skip
def test_what_goes_on_or_has_hardly_stopped_stays_open(floors: Floats) -> None:
    book = seen(Run(1, len(floors)).holds(0, floors))
    assert [one.is_open for one in book.incidents] == [True]


def test_each_of_its_ranks_must_be_level() -> None:
    both = replace(LEAK, ranks=(0, 1))
    run = Run(2, 200).holds(0, filled(100, 200))
    (one,) = seen(run, finding=both).incidents
    assert one.is_open  # of rank 1 nothing is known
    assert levelled(one, run.holds(1, leak(200, 2.0)).state) is None
    assert levelled(one, Run(2, 200).holds(0, filled(100, 200)).holds(1, filled(120, 200)).state) is not None


def test_of_another_kind_or_another_attempt_nothing_is_said() -> None:
    run = Run(1, 200).holds(0, filled(100, 200))
    (one,) = seen(run, finding=replace(LEAK, kind="memory.device_leak", key="allocated")).incidents
    assert one.is_open
    (one,) = seen(run).incidents
    one.attempt = 1
    assert levelled(one, run.state) is None


def test_what_never_grew_is_not_level_again() -> None:
    (one,) = seen(Run(1, 200).holds(0, flat(200) * 0 + BASE)).incidents
    assert one.is_open
