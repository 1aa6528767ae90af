"""Values are apart because a rank of a mesh has gone another way: named while the job runs on."""

from dataclasses import replace

import pytest
from tests.detectors.states import Job
from tests.detectors.test_astray import STEP, Mesh
from tests.detectors.training import Training

from diagd.daemon.detectors.attention import attention
from diagd.daemon.detectors.consequences import without_consequences
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity


def apart(kind: str = "divergence.gradient") -> Finding:
    cause = Cause("apart", "not reduced", 0.9, Basis.OBSERVATION, (Evidence("values differ", "probe"),))
    return Finding(kind, Severity.CRITICAL, (0, 1, 2, 3), "ranks hold different values", (cause,), goes_on=True)


def running(after: int = 8, *, found: Finding | None = None) -> Job:
    """Rank 3 has called two operations of tp1 too many, so many steps ago; `found`: in what training computes."""
    mesh = Mesh().runs(range(4), *STEP, times=8).runs((3,), "tp", "tp").runs(range(4), *STEP, times=after)
    mesh.job.train(*range(4), step_s=0.5).passes(2)
    mesh.job.state.looked = (mesh.job.now_s, [found] if found is not None else [])
    return mesh.job


def test_where_values_are_apart_the_rank_that_left_the_others_way_is_named() -> None:
    found = running(found=apart()).finds()
    assert (found.kind, found.ranks, found.goes_on) == ("hang.collective_mismatch", (3,), True)
    assert "rank 3 has issued 2 more operations of group tp1 than the others, since #17 of group dp1" in found.summary


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(running(), id="nothing is known to be apart"),
        pytest.param(running(found=apart("training.loss_spike")), id="no values are"),
        pytest.param(running(3, found=apart()), id="it was seen at too few places since"),
    ],
)
def test_else_nobody_is(job: Job) -> None:
    assert job.find() == ()


def test_of_a_group_of_all_ranks_what_one_has_left_out_shows_in_the_values_better() -> None:
    mesh = (
        Mesh().runs(range(4), "world", "dp", times=10).runs((0, 1, 2), "world").runs(range(4), "world", "dp", times=10)
    )
    mesh.job.train(*range(4), step_s=0.5).passes(2)
    mesh.job.state.looked = (mesh.job.now_s, [apart()])
    assert mesh.job.find() == ()


def test_it_stands_though_the_flight_recorders_are_not_at_hand_any_more_and_not_after_a_restart() -> None:
    job = running(found=apart())
    first = job.finds()
    for rank in range(4):
        job.ranks[rank].detail = job.ranks[rank].detail.with_(recorder=())
    assert job.finds().ranks == first.ranks
    job.state.attempt = 1
    assert job.find() == ()


def test_a_circle_that_comes_later_is_laid_to_the_same_rank_though_the_rings_have_lost_what_told_it() -> None:
    job = running(found=apart())
    job.finds()
    for rank in range(4):
        job.ranks[rank].detail = job.ranks[rank].detail.with_(recorder=())
    job.rest(*range(4)).waits(0, seq=1).waits(2, seq=1).waits(1, seq=40, group="dp1").waits(3, seq=40, group="tp1")
    found = job.passes(10).finds()
    assert (found.kind, found.ranks, found.causes[0].key) == ("hang.group_cycle", (3,), "astray")


def test_what_its_wrong_operations_make_of_the_values_is_no_finding_of_its_own() -> None:
    (cause,) = running(found=apart()).find()
    follows = [apart(kind) for kind in ("divergence.gradient", "numerics.nonfinite", "training.loss_spike")]
    assert without_consequences([cause, *follows, apart("precision.overflow")]) != []
    assert [f.kind for f in without_consequences([cause, *follows])] == ["hang.collective_mismatch"]


@pytest.mark.parametrize(("found", "read"), [([apart()], (0, 1)), ([], ())])
def test_where_values_are_apart_the_flight_recorders_are_read_soon(found: list[Finding], read: tuple[int, ...]) -> None:
    run = Training(2)
    run.state.started_s = run.now_s
    run.groups = tuple(replace(group, enqueued=10_000) for group in run.groups)  # from C++
    run.goes(10)
    run.closely = False
    run.goes(25)
    run.state.looked = (run.now_s, found)
    assert attention(run.state).recorder == read
