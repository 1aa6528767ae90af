"""What ranks are asked to digest, and when: the whole way from a tensor that differs to the row in which it does."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.aggregator.fakes import FakeBook, FakeJudge, FakeLink, Wanted
from tests.aggregator.test_loop import window

from diagd.daemon.agent.wire import ledger_message
from diagd.daemon.aggregator import sweeping
from diagd.daemon.aggregator.judging import Judge
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.sweeping import Sweeps
from diagd.daemon.detectors.narrowed import suspects
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Facts, Status
from diagd.daemon.state.tensors import LedgerNews, TensorInfo
from diagd.probes.box import requests
from diagd.proto.v1.agent_pb2 import Command, ConnectRequest, DigestRequest

RANKS = (0, 1, 2)
HEAD = TensorInfo("Net.head.weight", shape=(4096, 8), placement="ddp", peers=RANKS)
BODY = TensorInfo("Net.body.weight", shape=(16, 8), placement="ddp", peers=RANKS)
TENSORS = HEAD, BODY


class Ranks:
    """Three ranks that train, and do as they are asked; on rank 1 some rows of some tensors are other ones."""

    def __init__(self, odd: dict[TensorInfo, range]) -> None:
        self.odd = odd
        self.tensors = list(TENSORS)
        self.state = JobState()
        self.sweeps = Sweeps()
        self.asked: list[DigestRequest] = []  # of rank 1
        self.now_s, self.at = 100.0, 0
        self.step(1)
        self.step(1)
        self.tell(lambda tensor, rank: 5, 2)

    def step(self, steps: int) -> None:
        """All make so many steps of an eighth of a second."""
        self.now_s, self.at = self.now_s + 0.125 * steps, self.at + steps
        self.state.apply([Facts(r, pid=100 + r, step=self.at, step_s=self.now_s) for r in RANKS], [], self.now_s)

    def tell(self, digest: Callable[[TensorInfo, int], int], step: int) -> None:
        """What all hold after a step."""
        news = [
            LedgerNews(r, 100 + r, 0, TENSORS, [0, 1], [step, step], [digest(t, r) for t in TENSORS]) for r in RANKS
        ]
        self.state.tensors.apply(news, 3)

    def part(self) -> None:
        """The weights differ from now on, and one is seen to."""
        self.step(30)
        self.tell(lambda tensor, rank: 5 + (tensor is HEAD and rank == 1), self.at)

    def due(self) -> dict[int, DigestRequest]:
        due = self.sweeps.due(self.state, suspects(self.state), self.now_s)
        if due:
            self.asked.append(due[1])
        return due

    def serve(self, due: dict[int, DigestRequest]) -> None:
        """They come to the step, and answer."""
        self.step(due[0].step - self.at + 1)
        for rank, request in due.items():
            self.state.tensors.apply([self._answer(rank, request)], 3)

    def _answer(self, rank: int, request: DigestRequest) -> LedgerNews:
        parts = [
            (t.row, request.step, first, stop, int(self._differs(self.tensors[t.row], rank, range(first, stop))))
            for t in request.targets
            for first, stop in pairwise(requests.Target(t.row, t.first, t.stop, t.parts).edges())
        ]
        rows = [n for n in range(len(self.tensors)) if request.everything]
        digests = [7 + self._differs(self.tensors[n], rank, range(4096)) for n in rows]
        names = "part_rows", "part_steps", "part_firsts", "part_stops", "part_digests"
        columns: dict[str, Any] = {name: [part[at] for part in parts] for at, name in enumerate(names)}
        return LedgerNews(
            rank, 100 + rank, 2, (), rows, [request.step for _ in rows], digests,
            answered=request.serial, answer=request.step, **columns,
        )  # fmt: skip

    def _differs(self, tensor: TensorInfo, rank: int, rows: range) -> bool:
        odd = self.odd.get(tensor, range(0))
        return rank == 1 and max(odd.start, rows.start) < min(odd.stop, rows.stop)

    def run(self) -> "Ranks":
        """Until nothing more is asked."""
        while due := self.due():
            self.serve(due)
        return self


def test_what_is_asked_fits_into_what_a_rank_takes() -> None:
    assert sweeping.MAX_TARGETS <= requests.MAX_TARGETS
    assert sweeping.PARTS <= requests.MAX_PARTS


def test_of_ranks_that_agree_nothing_is_asked() -> None:
    assert not Ranks({}).due()


def test_one_row_is_found_in_two_passes_and_all_is_digested_once() -> None:
    ranks = Ranks({HEAD: range(517, 518)})
    ranks.part()
    ranks.run()
    assert [(bool(r.everything), [(t.row, t.first, t.stop) for t in r.targets]) for r in ranks.asked] == [
        (True, [(0, 0, 4096)]), (False, [(0, 512, 576)]),
    ]  # fmt: skip
    head, body = ranks.state.tensors.entries
    assert head.where is not None
    assert (head.where.spans, head.where.unit, body.where) == (((517, 518),), 1, None)


def test_all_ranks_are_asked_for_the_same_step_which_none_has_come_to() -> None:
    ranks = Ranks({HEAD: range(517, 518)})
    ranks.part()
    due = ranks.due()
    assert {request.step for request in due.values()} == {ranks.at + 16}
    assert {rank: request.pid for rank, request in due.items()} == {0: 100, 1: 101, 2: 102}
    assert not ranks.due()  # one at a time


def test_what_the_sweep_shows_is_looked_at_next() -> None:
    ranks = Ranks({HEAD: range(517, 518), BODY: range(3, 5)})
    ranks.part()
    ranks.run()
    assert [[t.row for t in request.targets] for request in ranks.asked] == [[0], [0, 1]]
    assert [entry.where.spans for entry in ranks.state.tensors.entries if entry.where] == [((517, 518),), ((3, 5),)]


def test_a_tensor_that_differs_throughout_is_not_looked_at_more_closely() -> None:
    ranks = Ranks({HEAD: range(4096)})
    ranks.part()
    ranks.run()
    assert len(ranks.asked) == 1
    where = ranks.state.tensors.entries[0].where
    assert where is not None
    assert (where.unequal, where.parts, where.spans) == (64, 64, ((0, 4096),))


def test_a_rank_that_was_past_the_step_is_asked_again_and_further_ahead() -> None:
    ranks = Ranks({HEAD: range(517, 518)})
    ranks.part()
    first = ranks.due()
    ranks.step(1)
    serial = first[0].serial
    late = [LedgerNews(r, 100 + r, answered=serial, answer=-1 if r == 2 else first[0].step) for r in RANKS]
    ranks.state.tensors.apply(late, 3)
    second = ranks.due()
    assert (second[0].serial, second[0].everything, len(second[0].targets)) == (serial + 1, True, 1)
    assert second[0].step == ranks.at + 48


def test_what_is_never_answered_is_given_up_in_the_end() -> None:
    ranks = Ranks({HEAD: range(517, 518)})
    ranks.part()
    for _ in range(3 * sweeping.MAX_REQUESTS):
        ranks.due()
        ranks.now_s += 10_000.0
    assert len(ranks.asked) == sweeping.MAX_REQUESTS


def test_sweeps_are_few_and_far_between() -> None:
    ranks = Ranks({})
    for number in range(10 * sweeping.MAX_SWEEPS):
        fresh = TensorInfo(f"Net.{number}", shape=(8, 8), placement="ddp", peers=RANKS)
        row = len(ranks.tensors)
        ranks.tensors.append(fresh)
        ranks.odd[fresh] = range(8)
        for step, odd in ((2, 0), (ranks.at, 1)):
            news = [LedgerNews(r, 100 + r, row, (fresh,), [row], [step], [odd * (r == 1)]) for r in RANKS]
            ranks.state.tensors.apply(news, 3)
        if due := ranks.due():
            ranks.serve(due)
        ranks.step(10)
    steps = [request.step for request in ranks.asked if request.everything]
    apart = [later - earlier for earlier, later in pairwise(steps)]
    assert all(steps >= sweeping.BETWEEN_SWEEPS for steps in apart)
    assert sum(steps < sweeping.STILL for steps in apart) == sweeping.MAX_SWEEPS - 1
    assert len(ranks.asked) <= sweeping.MAX_REQUESTS


def test_whether_a_tensor_still_differs_is_asked_ever_more_seldom_and_not_once_it_is_equal() -> None:
    ranks = Ranks({HEAD: range(0, 4096)})
    ranks.part()
    while ranks.at < 1500:
        if due := ranks.due():
            ranks.serve(due)
        ranks.step(8)
    steps = [request.step for request in ranks.asked if request.everything]
    apart = [later - earlier for earlier, later in pairwise(steps)]
    assert len(apart) == 3
    assert all(sweeping.STILL * 2**n <= steps < sweeping.STILL * 2**n + 40 for n, steps in enumerate(apart))
    ranks.tell(lambda tensor, rank: 9, ranks.at)
    ranks.step(5000)
    assert not ranks.due()


def test_numbers_of_an_aggregator_before_this_one_are_not_used_again() -> None:
    serials: list[int] = []
    for _ in range(2):
        ranks = Ranks({HEAD: range(517, 518)})
        ranks.now_s += 1000.0 * len(serials)
        ranks.part()
        serials.append(ranks.due()[0].serial)
    assert serials[0] < serials[1]


@pytest.mark.parametrize("reason", ["gone", "pace"])
def test_nothing_is_asked_where_a_rank_is_gone_or_its_pace_is_not_known(reason: str) -> None:
    ranks = Ranks({HEAD: range(517, 518)})
    ranks.part()
    if reason == "gone":
        ranks.state.columns.status[2] = Status.EXITED
    else:
        ranks.state.columns.step_interval_s[:] = 0.0
    assert not ranks.due()


def test_each_node_is_told_of_its_own_ranks_and_none_where_one_is_not_connected() -> None:
    ranks = Ranks({HEAD: range(517, 518)})
    ranks.part()
    judge = FakeJudge(wanted=Wanted())
    loop = JobLoop("job", Judge(lambda state: (), lambda state: judge.wanted, FakeBook, suspects))
    links = [FakeLink("n0"), FakeLink("n1")]
    loop.connect(links[0])
    for link, members in zip(links, ((0, 2), (1,)), strict=True):
        for step, second in ((10, 100.0), (20, 101.0)):
            facts = [Facts(r, pid=100 + r, step=step, step_s=second) for r in members]
            loop.receive(link, window(facts, [], second), second)
    loop.tick(101.0)
    for step, odd in ((1, 0), (8, 1)):
        request = ConnectRequest()
        request.window.ledgers.extend(
            ledger_message(LedgerNews(r, 100 + r, 0, (HEAD,), [0], [step], [odd * (r == 1)])) for r in RANKS
        )
        loop.receive(links[0], request, 101.0)
    loop.tick(101.1)
    assert loop.commands(101.1) == []
    loop.connect(links[1])
    told: dict[str, Command] = {link.node: command for link, command in loop.commands(101.2)}
    assert {node: [r.rank for r in command.digest.requests] for node, command in told.items()} == {
        "n0": [0, 2], "n1": [1],
    }  # fmt: skip
    assert len({command.id for command in told.values()}) == 2
