"""Operations of all ranks side by side, and the vote on who differs."""

from hypothesis import given
from hypothesis import strategies as st
from tests.detectors.states import job

from diagd.daemon.detectors.ledger import (
    FIELDS,
    Signature,
    classes,
    differing,
    ledger_of,
    minority,
    signature,
)
from diagd.daemon.state.model import Operation

SIGNATURES = st.dictionaries(
    st.integers(0, 9),
    st.tuples(
        st.sampled_from(["ALLREDUCE", "BARRIER"]),
        st.sampled_from([None, "float32", "float16"]),
        st.sampled_from([None, 4, 8]),
        st.sampled_from([None, "SUM", "MAX"]),
        st.sampled_from([None, 0, 1]),
    ),
    min_size=1,
    max_size=8,
)


@given(SIGNATURES)
def test_every_rank_is_in_one_class_and_the_largest_comes_first(signatures: dict[int, Signature]) -> None:
    ranked = classes(signatures)
    assert sorted(r for ranks in ranked for r in ranks) == sorted(signatures)
    assert [len(ranks) for ranks in ranked] == sorted((len(ranks) for ranks in ranked), reverse=True)


@given(SIGNATURES)
def test_who_is_in_the_minority_is_fewer_than_the_rest_or_all_tie(signatures: dict[int, Signature]) -> None:
    ranked = classes(signatures)
    culprits, tie = minority(ranked)
    if len(ranked) == 1:
        assert (culprits, tie) == ((), False)
    elif tie:
        assert set(culprits) == set(signatures)
    else:
        assert not set(culprits) & set(ranked[0])
        assert set(culprits) | set(ranked[0]) == set(signatures)


@given(SIGNATURES)
def test_ranks_that_are_told_apart_differ_in_a_named_field(signatures: dict[int, Signature]) -> None:
    fields = differing(signatures)
    assert set(fields) <= set(FIELDS)
    if len(classes(signatures)) > 1:
        assert fields


@given(SIGNATURES, st.permutations(range(10)))
def test_the_vote_does_not_depend_on_how_ranks_are_numbered(signatures: dict[int, Signature], order: list[int]) -> None:
    culprits, tie = minority(classes(signatures))
    renamed = {order[r]: s for r, s in signatures.items()}
    assert minority(classes(renamed)) == (tuple(sorted(order[r] for r in culprits)), tie)


def test_another_operation_outranks_its_fields() -> None:
    apart: dict[int, Signature] = {0: ("ALLREDUCE", "float32", 4, "SUM", None), 1: ("BARRIER", "int64", 1, "MAX", None)}
    assert differing(apart) == ("operation",)


def test_elements_are_counted_from_shapes_where_no_count_is_known() -> None:
    assert signature(Operation("ALLREDUCE", shapes=((3, 4), (5,))))[2] == 17


def test_a_counter_counts_as_entered_without_a_record() -> None:
    counted = job(2).entered(1, 17).report()
    assert ledger_of(counted.state).entered("0", 1) == 17


def test_sends_and_receives_take_no_place_in_a_groups_order() -> None:
    assert ledger_of(job(2).receives(0, peer=1, seq=4).report().state).probe == {}


def test_the_probes_record_comes_before_the_recorders() -> None:
    both = job(1).waits(0, "ALLREDUCE", seq=4).recorded(0, "BARRIER", 4).report()
    seen = ledger_of(both.state).at("0", 4, 0)
    assert seen is not None
    assert seen.name == "ALLREDUCE"
