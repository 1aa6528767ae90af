"""Ranks that compute in another precision than their script means."""

from tests.detectors.states import Job, at

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.state.model import Frame

REGION = at("fit", line=30)


def job(stale: dict[int, int], site: Frame | None = REGION) -> Job:
    """Four ranks; those of `stale` use old casts from that step on."""
    made = Job(4, 10.0, {}, warm=True)
    for rank, step in stale.items():
        placed = made.ranks[rank]
        placed.detail = placed.detail.with_(stale_cast_step=step, stale_cast_site=site)
    return made.train(*made.ranks, step_s=0.5).passes(2.0)


def test_old_casts_on_all_ranks_are_one_fault_from_the_first_step_on() -> None:
    (found,) = job({0: 4, 1: 3, 2: 3, 3: 3}).find()
    assert (found.kind, found.severity, found.ranks) == ("precision.stale_cache", Severity.CRITICAL, (0, 1, 2, 3))
    assert (found.step, found.goes_on) == (3, True)
    assert {location.frame for location in found.locations} == {REGION}
    assert "from step 3 on" in found.summary


def test_ranks_without_them_are_not_named() -> None:
    (found,) = job({2: 7}, site=None).find()
    assert (found.ranks, found.locations) == ((2,), ())


def test_a_hang_does_not_hide_them() -> None:
    hung = job(dict.fromkeys(range(4), 3))
    for rank in range(3):
        hung.waits(rank)
    hung.stopped(3).passes(30.0)
    assert {finding.kind for finding in hung.find()} == {"hang.rank_stopped", "precision.stale_cache"}


def test_none_are_no_finding() -> None:
    assert job({}).find() == ()
