"""A rank of a mesh that has issued more, or fewer, operations of one dimension than the others by the same places."""

from collections import Counter
from collections.abc import Iterable

import pytest
from tests.detectors.states import Job, job

MESH: dict[str, tuple[int, ...]] = {"dp0": (0, 2), "dp1": (1, 3), "tp0": (0, 1), "tp1": (2, 3)}
STEP = ("tp", "tp", "dp", "dp")  # of each rank's program: the operations of a step, by the dimension


class Mesh:
    """Replicas of `shards` ranks each, two of two where nothing else is said; every rank runs its program."""

    def __init__(self, world: int = 4, groups: dict[str, tuple[int, ...]] = MESH, shards: int = 2) -> None:
        self.job = job(world, groups=groups)
        self.shards = shards
        self.seqs: Counter[tuple[int, str]] = Counter()

    def runs(self, ranks: Iterable[int], *dimensions: str, times: int = 1) -> "Mesh":
        """They issue these operations, which end, so many times over."""
        for rank in ranks:
            for dimension in dimensions * times:
                self.seqs[rank, dimension] += 1
                self.job.recorded(rank, "ALLREDUCE", self.seqs[rank, dimension], self.group(rank, dimension))
        return self

    def stands(self, rank: int, dimension: str) -> "Mesh":
        """It waits in its next operation of that dimension."""
        self.seqs[rank, dimension] += 1
        seq, group = self.seqs[rank, dimension], self.group(rank, dimension)
        self.job.recorded(rank, "ALLREDUCE", seq, group, retired=False).waits(rank, seq=seq, group=group)
        return self

    def group(self, rank: int, dimension: str) -> str:
        return {"tp": f"tp{rank // self.shards}", "dp": f"dp{rank % self.shards}", "world": "0"}[dimension]


def end_of_extra(mesh: Mesh) -> Job:
    """A step that ends with an operation of all, which rank 3 does not come to: it is two operations ahead in tp1."""
    mesh.runs((0, 1, 2), "tp", "tp").runs((0, 2), "dp", "dp")
    return mesh.stands(0, "world").stands(2, "world").stands(1, "dp").stands(3, "tp").job.passes(10)


def test_a_rank_that_has_called_too_much_many_steps_ago_is_the_one_out_of_order() -> None:
    mesh = Mesh().runs(range(4), *STEP, times=6).runs((3,), "tp", "tp").runs(range(4), *STEP, times=6)
    found = end_of_extra(mesh).finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.group_cycle", (3,), (0, 1, 2))
    assert "rank 3 has issued 2 more operations of group tp1 than the others, since #13 of group dp1" in found.summary


def test_a_rank_that_has_left_out_what_all_others_called_is_the_one_out_of_order() -> None:
    mesh = Mesh().runs(range(4), *STEP, times=6).runs((0, 1, 2), "tp", "tp").runs(range(4), *STEP, times=6)
    mesh.runs((0, 1, 3), "tp", "tp").runs((1, 3), "dp", "dp")
    stuck = mesh.stands(1, "world").stands(3, "world").stands(0, "dp").stands(2, "tp").job.passes(10)
    found = stuck.finds()
    assert (found.kind, found.ranks) == ("hang.group_cycle", (3,))
    assert "rank 3 has issued" in found.summary


def test_a_call_too_many_in_the_very_step_that_hangs_is_seen_by_what_the_others_had_issued_by_the_next_place() -> None:
    found = end_of_extra(Mesh().runs(range(4), *STEP, times=8).runs((3,), "tp", "tp")).finds()
    assert (found.kind, found.ranks) == ("hang.group_cycle", (3,))
    assert "1 more operation of group tp1 than the others, since #17 of group dp1" in found.summary


@pytest.mark.parametrize(
    ("steps", "strays"),
    [
        pytest.param(3, (3,), id="agreed at too few places"),
        pytest.param(8, (1, 3), id="as many ranks have called too much as have not"),
    ],
)
def test_where_the_counts_do_not_tell_it_is_a_tie(steps: int, strays: tuple[int, ...]) -> None:
    mesh = Mesh().runs(range(4), *STEP, times=steps).runs(strays, "tp", "tp").runs(range(4), *STEP, times=2)
    found = end_of_extra(mesh).finds()
    assert "out of order" not in found.summary
    assert "more operation" not in found.summary
    assert len(found.ranks) > 1


def test_what_one_half_of_the_mesh_does_by_itself_makes_none_of_its_ranks_odd() -> None:
    mesh = Mesh().runs(range(4), *STEP, times=8).runs((2, 3), "tp", "tp").runs(range(4), *STEP, times=4)
    stuck = mesh.stands(0, "world").stands(2, "world").stands(1, "dp").stands(3, "tp").job.passes(10)
    assert "more operation" not in stuck.finds().summary
    assert len(stuck.finds().ranks) > 1


def test_what_the_first_rank_of_each_group_does_beside_is_its_part() -> None:
    """The first rank of each tensor-parallel group sums up its metrics over the replicas, once in a while."""
    groups: dict[str, tuple[int, ...]] = {"tp0": (0, 1, 2, 3), "tp1": (4, 5, 6, 7)}
    groups |= {f"dp{n}": (n, n + 4) for n in range(4)}
    mesh = Mesh(8, groups, 4).runs(range(8), *STEP, times=8).runs((0, 4), "dp", "dp").runs(range(8), *STEP, times=3)
    rest = (1, 2, 3, 5, 6, 7)
    mesh.runs(range(8), "tp", "tp").runs(rest, "dp", "dp")
    for rank in rest:
        mesh.stands(rank, "world")
    found = mesh.stands(4, "dp").stands(0, "tp").job.passes(10).finds()
    assert "out of order" in found.summary  # by where they stand
    assert "has issued" not in found.summary
