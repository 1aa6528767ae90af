"""Who of the ranks of a pipeline has left out one of its micro-batches' sends, by what each has always made."""

import pytest
from tests.detectors.states import Job, at, job

from diagd.daemon.detectors.rounds import Key, missing

SEND_AT, RECV_AT = at("backward", line=19), at("forward", line=15)
MANY = 4


def run(made: Job, rank: int, name: str, peer: int, times: int) -> None:
    """As many in a row, each at a time of its own."""
    for _ in range(times):
        made.now_s += 0.001
        made.did(rank, name, SEND_AT if name == "SEND" else RECV_AT, peer=peer)


def pipeline(rounds: int, last: dict[int, int], varied: bool = False) -> Job:
    """Rank 0 sends to 1 and receives from it, rank 1 passes on to 2 and back; `last` micro-batches of each in the end.

    Ranks 1 and 2 then wait for each other: 1 for one more of 2's, and 2 for the next round's.
    """
    made = job(3)
    for number in range(rounds):
        count = MANY - 1 if varied and number % 2 else MANY
        for name0, name2 in (("SEND", "RECV"), ("RECV", "SEND")):
            run(made, 0, name0, 1, count)
            run(made, 2, name2, 1, count)
    run(made, 0, "SEND", 1, last[0])
    run(made, 2, "RECV", 1, last[0])
    run(made, 2, "SEND", 1, last[2])
    made.receives(0, peer=1, site=RECV_AT).receives(1, peer=2, site=RECV_AT).receives(2, peer=1, site=RECV_AT)
    return made.passes(2)


@pytest.mark.parametrize(
    ("made", "ranks", "said"),
    [
        (pipeline(9, {0: MANY, 2: MANY - 1}), (2,), "left out a send or receive that was in each of its rounds"),
        (pipeline(3, {0: MANY, 2: MANY - 1}), (1, 2), ""),  # too few rounds to know what is usual
        (pipeline(9, {0: MANY, 2: MANY - 1}, varied=True), (1, 2), ""),
        (pipeline(9, {0: MANY, 2: MANY}), (1, 2), ""),
        (pipeline(9, {0: MANY - 1, 2: MANY - 1}), (1,), "where all others have made fewer in this round"),
    ],
    ids=["one", "few", "varied", "none", "all others"],
)
def test_who_made_another_number_than_ever_is_at_fault(made: Job, ranks: tuple[int, ...], said: str) -> None:
    found = made.finds()
    assert (found.kind, found.ranks) == ("hang.p2p_unmatched", ranks)
    assert said in found.summary


A, B, C = ("SEND", 1), ("RECV", 1), ("RECV", 3)


@pytest.mark.parametrize(
    ("keys", "due"),
    [
        ([A, C, B] * 8, None),
        ([A, C, B] * 8 + [A], None),  # in the midst of a round
        ([A, C, B] * 8 + [A, B], C),
        ([C, B] + [A, C, B] * 8 + [A, B], C),  # what is kept begins in the midst of one
        ([B] * 9 + [A, C, B] * 8 + [A, B], C),  # after a beginning of its own
        ([A, C, B] * 5 + [A, B], None),
        ([A] * 30 + [B], None),  # the first of many micro-batches
        ([A] * 60 + [B], A),
        ([A, A, B, A, B] * 8 + [A, B], A),
        ([], None),
    ],
)
def test_what_was_due_is_known_from_rounds_that_are_alike(keys: list[Key], due: Key | None) -> None:
    assert missing(keys) == due
