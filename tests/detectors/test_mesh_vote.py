"""Two ranks of one group disagree: the other groups of that dimension of the mesh tell which of them is right."""

import pytest
from tests.detectors.states import Job, job

MESH: dict[str, tuple[int, ...]] = {"dp0": (0, 2), "dp1": (1, 3), "tp0": (0, 1), "tp1": (2, 3)}
DONE = 10  # operations of each tp group before


def disagreeing(lengths: tuple[int, int] = (64, 64), odd: int = 8, done: int = DONE, before: int = 0) -> Job:
    """Rank 3 reduces `odd` elements where rank 2 reduces its group's usual number; tp0 is at the same place.

    All reduced `before` elements until then, where that is told.
    """
    mesh = job(4, groups=MESH)
    for rank in range(4):
        for seq in range(1, done + 1):
            mesh.recorded(rank, "ALLREDUCE", seq, f"tp{rank // 2}", numel=before or lengths[rank // 2], dtype="float32")
    for rank in range(4):
        numel = odd if rank == 3 else lengths[rank // 2]
        group, dtype = f"tp{rank // 2}", "float32"
        mesh.recorded(rank, "ALLREDUCE", done + 1, group, retired=rank < 2, numel=numel, dtype=dtype)
    for rank in (2, 3):
        mesh.waits(rank, seq=done + 1, group="tp1", numel=odd if rank == 3 else lengths[1], dtype="float32")
    return mesh.waits(0, seq=1, group="dp0").waits(1, seq=1, group="dp1").passes(10)


def test_the_side_that_no_other_group_of_the_mesh_agrees_with_is_at_fault() -> None:
    found = disagreeing().finds()
    assert (found.kind, found.ranks, found.waiting_ranks) == ("hang.collective_mismatch", (3,), (0, 1, 2))
    assert found.summary.startswith("rank 3 ALLREDUCE float32, 8 elements")
    assert "where rank 2" in found.summary
    assert "the mesh's other groups of this kind entered what rank 2 did" in [e.what for e in found.causes[0].evidence]


@pytest.mark.parametrize(
    "mesh",
    [
        pytest.param(disagreeing(lengths=(8, 64)), id="the groups' samples were never of one length"),
        pytest.param(disagreeing(before=8), id="from there on samples differ in length, and it is rank 3 that goes on"),
        pytest.param(disagreeing(before=16), id="from there on samples differ in length"),
        pytest.param(disagreeing(done=4), id="too little was seen to say what is usual"),
    ],
)
def test_where_the_groups_did_not_always_do_alike_a_tie_stays_a_tie(mesh: Job) -> None:
    assert mesh.finds().ranks == (2, 3)


def test_where_no_side_does_what_the_other_groups_do_a_tie_stays_a_tie() -> None:
    mesh = disagreeing(odd=8)
    for rank in (0, 1):
        place = next(n for n, op in enumerate(mesh.ranks[rank].detail.recorder) if op.seq == DONE + 1)
        kept = mesh.ranks[rank].detail.recorder[:place]
        mesh._detail(rank, recorder=kept)
        mesh.recorded(rank, "ALLREDUCE", DONE + 1, "tp0", numel=16, dtype="float32")
    assert mesh.finds().ranks == (2, 3)
