"""Operations that end on all ranks, and are not the same on all."""

from typing import Any

import pytest
from tests.detectors.states import Job, job


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


def test_equal_operations_are_no_finding() -> None:
    assert calls(job(3), 20, odd=None).find() == ()


@pytest.mark.parametrize("name", ["ALLGATHER", "REDUCE_SCATTER", "ALLTOALL", "GATHER", "SCATTER"])
def test_parts_of_uneven_size_are_legal_where_the_backend_takes_them(name: str) -> None:
    assert calls(job(3), 20, name, numel=99).find() == ()


def test_two_ranks_that_differ_are_both_named() -> None:
    assert calls(job(2), 3, reduce_op="MAX").finds().ranks == (0, 1)
