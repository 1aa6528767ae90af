"""Operations that end on all ranks, and are not the same on all."""

from typing import Any

import pytest
from tests.detectors.states import Job, at, job


def calls(made: Job, times: int, name: str = "ALLREDUCE", odd: int | None = 1, **argument: Any) -> Job:
    """Each rank finishes `times` operations; the odd rank with another argument than the rest."""
    usual = {"reduce_op": "SUM", "dtype": "float32", "root": 0, "numel": 12}
    for seq in range(1, times + 1):
        for rank in range(len(made.ranks)):
            arguments = {**usual, **(argument if rank == odd else {})}
            made.issued(rank, name, seq, returned_s=made.now_s, **arguments)
    return made


@pytest.mark.parametrize(
    ("argument", "field"),
    [({"reduce_op": "MAX"}, "reduce op"), ({"dtype": "int32"}, "dtype"), ({"root": 2}, "root")],
)
def test_an_argument_that_differs_again_and_again_is_told_though_nothing_hangs(
    argument: dict[str, Any], field: str
) -> None:
    found = calls(job(3), 3, **argument).finds()
    assert (found.kind, found.ranks, found.names, found.goes_on) == ("hang.collective_mismatch", (1,), (field,), True)


def test_one_difference_may_be_a_counter_read_in_the_wrong_moment() -> None:
    assert calls(job(3), 2, reduce_op="MAX").find() == ()


@pytest.mark.parametrize(("line_after", "told"), [(50, True), (51, False)])
def test_one_between_two_at_which_all_were_side_by_side_is_told_at_once(line_after: int, told: bool) -> None:
    made = job(3)
    for seq in (1, 2, 3):
        for rank in range(3):
            line = line_after if seq == 3 and rank == 1 else 50
            reduce = "MAX" if seq == 2 and rank == 1 else "SUM"
            made.issued(
                rank, "ALLREDUCE", seq, returned_s=made.now_s, reduce_op=reduce, numel=12, site=at("step", line=line)
            )
    found = made.find()
    assert [(one.kind, one.ranks, one.op_seq) for one in found] == [("hang.collective_mismatch", (1,), 2)] * told
    assert all("as at" not in evidence.what for one in found for evidence in one.causes[0].evidence)


def test_equal_operations_are_no_finding() -> None:
    assert calls(job(3), 20, odd=None).find() == ()


@pytest.mark.parametrize("name", ["ALLGATHER", "REDUCE_SCATTER", "ALLTOALL", "GATHER", "SCATTER"])
def test_parts_of_uneven_size_are_legal_where_the_backend_takes_them(name: str) -> None:
    assert calls(job(3), 20, name, numel=99).find() == ()


def test_two_ranks_that_differ_are_both_named() -> None:
    assert calls(job(2), 3, reduce_op="MAX").finds().ranks == (0, 1)
