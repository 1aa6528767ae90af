"""A mesh whose communication breaks down in one group: who stood alone in another group's call had only waited."""

import pytest
from tests.detectors.states import TORCH, TRAIN, Job, at, job

from diagd.daemon.state.model import Ending, Frame

FUNCTIONAL = Frame("wait_tensor", f"{TORCH}/distributed/_functional_collectives.py", 142, user=False)
MESH: dict[str, tuple[int, ...]] = {"dp0": (0, 2), "dp1": (1, 3), "tp0": (0, 1), "tp1": (2, 3)}


def fallen(called: int = 12, met: bool = False) -> Job:
    """Ranks 2 and 3 met in tp1, of which no call is seen, and rank 3 was aborted; ranks 0 and 1 wait in dp0 and dp1.

    Args:
        called: The operations of the dp groups before, each seen as a call.
        met: Rank 3 had come to the operation of dp1 in which rank 1 waits.
    """
    made = job(4, groups=MESH)
    for seq in range(1, called + 1):
        for rank in range(4):
            made.issued(rank, "ALLREDUCE", seq, f"dp{rank % 2}", returned_s=made.now_s).passes(0.05)
    made.entered(3, called + 1 if met else called, "dp1")
    for rank in (0, 1):
        made.waits(rank, seq=called + 1, group=f"dp{rank}", site=at("average", line=17)).passes(0.5)
    for rank in (0, 1):
        made.wait_raises(rank, "[gloo] Connection closed by peer")
    fell = Ending(
        "exception", "RuntimeError", "[gloo] reset", 1, (FUNCTIONAL, at("forward", line=13), TRAIN), made.now_s
    )
    made.dies(2, code=1, ending=fell)
    made.stack(3, FUNCTIONAL, at("forward", line=13), TRAIN).dies(3, signal="SIGABRT").passes(2)
    made.state.end(1, made.now_s)
    return made


def test_ranks_that_had_met_nobody_are_not_among_those_that_disagree() -> None:
    found = fallen().finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.collective_mismatch", (2, 3), (0, 1))
    assert "between ranks 2,3, all in forward (train.py:13)" in found.summary
    assert "cannot be told" in found.causes[0].text


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(fallen(called=4), id="whether all of the group's operations are calls is not known"),
        pytest.param(fallen(met=True), id="rank 1 had met rank 3"),
    ],
)
def test_a_rank_that_may_have_met_another_is_still_among_them(made: Job) -> None:
    assert 1 in made.finds().ranks
