"""Of several sends and receives of a pair, which are still open for whom."""

from dataclasses import replace

import pytest
from tests.detectors.states import TRAIN

from diagd.daemon.detectors.pairing import is_surplus
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Facts, Operation

WAITS = None


def op(name: str, peer: int, entered_s: float, returned_s: float | None = WAITS, seq: int = 0) -> Operation:
    return Operation(name, "0", seq, entered_s=entered_s, returned_s=returned_s, peer=peer, site=TRAIN)


def met(number: int, at_s: float) -> Operation:
    return op("ALLREDUCE", -1, at_s, at_s + 0.001, number)


def pair(mine: list[Operation], theirs: list[Operation], hosts: tuple[str, str] = ("a", "b")) -> JobState:
    """Ranks 2 and 3 of a job, with what each has done; what is open stands in both lists, as an agent tells it."""
    state = JobState()
    still = {2: tuple(o for o in mine if o.returned_s is None), 3: tuple(o for o in theirs if o.returned_s is None)}
    details = [
        Detail(rank, pid=rank, is_rank=True, host=host, history=tuple(done), operations=still[rank])
        for rank, done, host in ((2, mine, hosts[0]), (3, theirs, hosts[1]))
    ]
    state.apply([Facts(rank=r, pid=r) for r in (2, 3)], details, 1000.0)
    return state


def ring(sends: int, receives: int) -> tuple[list[Operation], list[Operation]]:
    """Two steps in order, then rank 2's sends to 3 and 3's receives from 2, the last of each open."""
    mine = [met(1, 1.0), op("SEND", 3, 2.0, 2.2), met(2, 3.0)]
    theirs = [met(1, 1.0), op("RECV", 2, 2.0, 2.25), met(2, 3.0)]
    mine += [op("SEND", 3, 4.0 + n, WAITS if n == sends - 1 else 4.2 + n) for n in range(sends)]
    theirs += [op("RECV", 2, 4.1 + n, WAITS if n == receives - 1 else 4.3 + n) for n in range(receives)]
    return mine, theirs


@pytest.mark.parametrize(("sends", "receives", "surplus"), [(1, 1, False), (2, 1, True), (3, 2, True), (2, 2, False)])
def test_a_send_beyond_the_receives_that_were_begun_has_no_partner(sends: int, receives: int, surplus: bool) -> None:
    mine, theirs = ring(sends, receives)
    assert is_surplus(pair(mine, theirs), 2, 3, mine[-1]) is surplus


@pytest.mark.parametrize(("sends", "receives", "surplus"), [(1, 1, False), (1, 2, True)])
def test_nor_has_a_receive_beyond_the_sends(sends: int, receives: int, surplus: bool) -> None:
    mine, theirs = ring(sends, receives)
    assert is_surplus(pair(mine, theirs), 3, 2, theirs[-1]) is surplus


def test_what_was_sent_before_they_met_and_is_taken_after_that_is_not_counted() -> None:
    mine, theirs = ring(2, 1)
    late = [replace(mine[1], returned_s=3.5), *mine[2:]]  # its wait comes behind the meeting
    assert not is_surplus(pair([mine[0], *late], theirs), 2, 3, mine[-1])


def test_where_they_exchanged_unequally_before_nothing_is_counted() -> None:
    mine, theirs = ring(2, 1)
    assert not is_surplus(pair([mine[0], op("SEND", 3, 1.5, 1.6), *mine[1:]], theirs), 2, 3, mine[-1])


def test_a_partner_that_takes_from_any_rank_is_not_counted() -> None:
    mine, theirs = ring(2, 1)
    anyone = [replace(o, peer=-1) if o.name == "RECV" else o for o in theirs]
    assert not is_surplus(pair(mine, anyone), 2, 3, mine[-1])


def test_ranks_that_never_met_are_told_by_their_times() -> None:
    mine = [op("SEND", 3, 4.0, 4.2), op("SEND", 3, 5.0, WAITS), op("SEND", 3, 5.1, WAITS)]
    theirs = [op("RECV", 2, 4.0, 4.2), op("RECV", 2, 4.3, WAITS)]
    state = pair(mine, theirs, ("a", "a"))
    assert is_surplus(state, 2, 3, mine[2])
    assert not is_surplus(pair(mine, theirs), 2, 3, mine[2])  # two clocks
    assert not is_surplus(state, 2, 3, mine[1])
