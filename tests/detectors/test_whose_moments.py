"""An optimizer's state that came back on another rank than its own, as the ranks tell it."""

import pytest
from tests.detectors.states import job

from diagd.daemon.detectors.finding import Finding

OWN = "a=0000000a:000000a1,b=0000000b:000000b1"  # rank 0's
OTHER = "a=0000001a:000001a1,b=0000001b:000001b1"  # rank 1's, of a part that has the same names
LATER = "c=0000000c:000000a1,d=0000000d:000000b1"  # other parameters, with the state of rank 0's
MIXED = "a=0000001a:000000a1,b=0000001b:000000b1"  # rank 1's weights with rank 0's state


def found(kept: tuple[str, ...], given: tuple[str, ...]) -> list[Finding]:
    made = job(2).train(0, 1).passes(1.0)
    for what, texts in (("kept", kept), ("given", given)):
        for rank, text in enumerate(texts):
            if text:
                made.state.signals.put_fact(rank, f"checkpoint/{what}", 40, text)
    return [one for one in made.find() if one.kind == "divergence.checkpoint"]


def test_files_that_two_ranks_have_exchanged_are_told_of_both() -> None:
    swapped = "a=0000000a:000001a1,b=0000000b:000001b1"
    (one,) = found((OWN, OTHER), (swapped, MIXED))
    assert (one.ranks, one.step, one.causes[0].key) == ((0, 1), 40, "whose")
    assert "rank 0 has what rank 1 wrote, rank 1 has what rank 0 wrote" in one.summary


def test_a_rank_that_has_anothers_file_is_told_alone() -> None:
    (one,) = found((OWN, OTHER), (OWN, MIXED))
    assert one.ranks == (1,)


def test_one_part_of_a_sharded_optimizer_on_all_ranks_is_told_without_any_file_seen() -> None:
    (one,) = found((), (OWN, LATER))
    assert one.ranks == (1,)
    assert "c has what a has there" in one.summary


@pytest.mark.parametrize(
    ("kept", "given"),
    [
        ((OWN, OTHER), (OWN, OTHER)),  # each its own
        ((OWN, OWN), (OWN, OWN)),  # replicas
        ((OWN,), (OWN, OWN)),  # replicas, of which one wrote
        ((OWN, OTHER), (OWN, OWN)),  # rank 1 goes on as rank 0, weights and all
        ((OWN,), (OWN, MIXED)),  # replicas that have parted: one's weights are others, the state is of common gradients
        ((), (OWN, "c=0000000a:000000a1,d=0000000b:000000b1")),  # the same parameters, under other names
        ((), (OWN, "c=0000000c:000000a1,d=0000000d:000000d1,e=0000000e:000000e1")),  # one of three: a chance
        ((), ("a=0000000a:000000a1,b=0000000b:000000a1", "c=0000000c:000000a1")),  # all alike: a symmetry
        ((OWN, OTHER), ("", "spoilt")),
    ],
)
def test_replicas_own_files_and_copies_of_a_whole_rank_are_in_order(
    kept: tuple[str, ...], given: tuple[str, ...]
) -> None:
    assert found(kept, given) == []
