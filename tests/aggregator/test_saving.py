"""A ledger of one step: when the ranks are asked for it, what becomes of it where they cannot, and what it says."""

import json
import zlib
from typing import Any

import pytest
from tests.aggregator.fakes import FakeJudge, FakeLink

from diagd.cuda_ext.additive import total
from diagd.cuda_ext.definition import finish
from diagd.daemon.aggregator.ledger import gathered, gathered_at_start, ledger_document, save_document
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.saving import Phase, Saves
from diagd.daemon.aggregator.sweeping import EXPIRES_S, Serials
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Facts, Status
from diagd.daemon.state.tensors import LedgerNews, TensorInfo
from diagd.probes.box.requests import AT_START, LATE
from diagd.proto.v1.agent_pb2 import DigestRequest

WHOLE = bytes(range(48))  # of 12 float32, four rows of three


def added(first: int, stop: int, data: bytes = WHOLE) -> str:
    """The total of some elements."""
    return f"{total(data[4 * first : 4 * stop], 4, range(first, stop)):016x}"


DIGEST = f"{finish(int(added(0, 12), 16), 48):016x}"


def row(region: str, numel: int, value: str, name: str = "Net.w", kind: str = "parameter") -> list[Any]:
    return [kind, name, "float32", 4, [4, 3], region, numel, value, True]


class Ranks:
    """Some ranks that make eight steps a second, and do as they are asked."""

    def __init__(self, count: int = 2) -> None:
        self.count, self.at, self.now_s = count, 0, 100.0
        self.state = JobState(job_id="job")
        self.saves = Saves(Serials())
        self.step(1)
        self.step(1)
        info = TensorInfo("Net.w", shape=(2, 3), placement="dtensor S(0)", local=True)
        self.state.tensors.apply([LedgerNews(r, 100 + r, 0, (info,), [0], [1], [r]) for r in range(count)], count)

    def step(self, steps: int) -> None:
        self.at, self.now_s = self.at + steps, self.now_s + 0.125 * steps
        facts = [Facts(r, pid=100 + r, step=self.at, step_s=self.now_s) for r in range(self.count)]
        details = [Detail(r, pid=100 + r, world_size=self.count) for r in range(self.count)]
        self.state.apply(facts, details, self.now_s)

    def due(self) -> dict[int, DigestRequest]:
        return self.saves.due(self.state, self.now_s)

    def answer(self, request: DigestRequest, rank: int, *tensors: list[Any], late: bool = False, **more: Any) -> None:
        told = {"serial": request.serial, "step": request.step, "error": "", "tensors": tensors, "unknown": []} | more
        blob = b"" if late else zlib.compress(json.dumps(told).encode())
        step = LATE if late else request.step
        news = LedgerNews(rank, 100 + rank, 1, answered=request.serial, answer=step, sums=blob)
        self.state.tensors.apply([news], self.count)

    def document(self) -> dict[str, Any]:
        return ledger_document(gathered(self.state, self.saves))

    def only(self) -> dict[str, Any]:
        (one,) = self.document()["tensors"]
        assert isinstance(one, dict)
        return one


def saved(*held: list[list[Any]], count: int = 0) -> Ranks:
    """Ranks that have answered, each with what it holds."""
    ranks = Ranks(count or len(held))
    ranks.saves.want(None)
    due = ranks.due()
    for rank, tensors in enumerate(held):
        ranks.answer(due[rank], rank, *tensors)
    return ranks


def test_nobody_is_asked_unless_somebody_wants_it() -> None:
    ranks = Ranks()
    assert ranks.due() == {}
    assert save_document(ranks.state, ranks.saves)["phase"] == "none"
    assert ranks.document()["step"] is None


def test_all_ranks_are_asked_for_one_step_ahead_and_it_is_done_when_all_have_answered() -> None:
    ranks = Ranks()
    ranks.saves.want(None)
    due = ranks.due()
    assert {(r.rank, r.pid, r.step, r.sums, r.everything) for r in due.values()} == {
        (0, 100, ranks.at + 16, True, True), (1, 101, ranks.at + 16, True, True)
    }  # fmt: skip
    assert len({r.serial for r in due.values()}) == 1
    assert ranks.due() == {}
    ranks.answer(due[0], 0, row("0:2,0:3", 6, added(0, 6)))
    told = save_document(ranks.state, ranks.saves)
    assert (told["phase"], told["answered"], told["ranks"], told["step"]) == ("asked", 1, 2, due[0].step)
    ranks.answer(due[1], 1, row("2:4,0:3", 6, added(6, 12)))
    assert save_document(ranks.state, ranks.saves)["phase"] == "done"
    document = ranks.document()
    assert (document["schema"], document["step"], document["not_told"]) == ("diagd.ledger/2", due[0].step, [])
    (one,) = document["tensors"]
    assert (one["shape"], one["placement"]) == ([4, 3], "dtensor S(0)")
    assert one["sums"] == {str(due[0].step): {DIGEST: "0,1"}}
    assert one["parts"] == {"0:2,0:3": {added(0, 6): "0"}, "2:4,0:3": {added(6, 12): "1"}}
    assert one["digests"] == {"1": {"0" * 16: "0", "0" * 15 + "1": "1"}}


@pytest.mark.parametrize(
    "held",
    [
        [row("", 12, added(0, 12))],
        [row("@0:5", 5, added(0, 5))],
        [row("0:4,0:1", 4, f"{(int(added(0, 12), 16) - 7) % 2**64:016x}")],
    ],
    ids=["whole", "flat", "columns"],
)
def test_the_whole_has_one_digest_however_it_is_split_and_replicated(held: list[list[Any]]) -> None:
    rest = {"": [], "@0:5": [row("@5:12", 7, added(5, 12))], "0:4,0:1": [row("0:4,1:3", 8, f"{7:016x}")]}[held[0][5]]
    others = [rest, rest] if rest else [held]
    (step, sums), *_ = saved(held, *others, held).only()["sums"].items()
    assert list(sums) == [DIGEST], step


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ([[row("0:2,0:3", 6, added(0, 6))], []], "parts of it are missing: 6 of 12 elements were told"),
        (
            [[row("0:2,0:3", 6, added(0, 6))], [row("0:2,0:3", 6, added(1, 7))], [row("2:4,0:3", 6, added(6, 12))]],
            "ranks 0,1 hold the same part, rows 0 to 1, and not the same in it",
        ),
        ([[row("", 12, added(0, 12))], [row("0:2,0:3", 6, added(0, 6))]], "some ranks hold all of it, others parts"),
    ],
)
def test_no_digest_is_made_of_parts_that_do_not_fit(held: list[list[list[Any]]], why: str) -> None:
    one = saved(*held).only()
    assert (one.get("sums"), one["why"]) == (None, why)


def test_ranks_that_each_hold_all_of_it_and_not_the_same_are_told_apart() -> None:
    one = saved([row("", 12, added(0, 12))], [row("", 12, added(0, 12))], [row("", 12, added(0, 12, bytes(48)))]).only()
    ((_, sums),) = one["sums"].items()
    assert (len(sums), sums[DIGEST]) == (2, "0,1")


def test_what_ranks_could_not_tell_is_said() -> None:
    ranks = Ranks(3)
    ranks.saves.want(None)
    due = ranks.due()
    ranks.answer(due[0], 0, unknown=[["parameter", "Net.w", "ZeRO"]])
    ranks.answer(due[1], 1, error="RuntimeError: out of memory")
    ranks.answer(due[2], 2, serial=5)  # of an earlier request
    document = ranks.document()
    assert [one.partition(":")[0] for one in document["not_told"]] == ["ranks 1", "ranks 2 told nothing"]
    assert document["tensors"][0]["why"] == "ZeRO (ranks 0)"


def test_a_flat_parameter_is_told_of_as_those_that_it_is_made_of() -> None:
    ranks = saved([row("@0:5", 5, added(0, 5))], [row("@5:12", 7, added(5, 12))])
    flat = TensorInfo("Net._flat_param", shape=(6,), placement="fsdp FULL_SHARD", local=True)
    ranks.state.tensors.apply([LedgerNews(0, 100, 1, (flat,))], 2)
    assert ranks.only()["name"] == "Net.w"


def test_what_only_the_answers_know_comes_after_what_was_sampled() -> None:
    held = [row("", 12, added(0, 12), "Net.w.exp_avg", "state"), row("", 12, added(0, 12))]
    document = saved(held).document()
    assert [one["name"] for one in document["tensors"]] == ["Net.w", "Net.w.exp_avg"]
    assert document["tensors"][1]["placement"] == "plain"


def test_ranks_that_were_past_the_step_are_asked_again_for_a_later_one() -> None:
    ranks = Ranks()
    ranks.saves.want(None)
    due = ranks.due()
    ranks.answer(due[0], 0, row("", 12, added(0, 12)))
    ranks.answer(due[1], 1, late=True)
    ranks.step(30)
    again = ranks.due()
    assert again[0].serial > due[0].serial
    assert again[0].step == ranks.at + 48
    for _ in range(8):
        for rank, request in again.items():
            ranks.answer(request, rank, late=True)
        again = ranks.due()
    assert (ranks.saves.now.phase, again) == (Phase.FAILED, {})
    assert "were past step" in save_document(ranks.state, ranks.saves)["why"]


def test_a_job_that_pauses_is_asked_anew() -> None:
    ranks = Ranks()
    ranks.saves.want(None)
    first = ranks.due()[0]
    ranks.now_s += EXPIRES_S
    assert ranks.due() == {}
    ranks.now_s += 3 * 16 * 0.125 + 1
    assert ranks.due()[0].serial > first.serial


def test_a_step_that_is_named_is_asked_for_when_it_is_near_and_refused_when_it_is_over() -> None:
    ranks = Ranks()
    ranks.saves.want(500)
    assert ranks.due() == {}
    assert save_document(ranks.state, ranks.saves)["why"] == "step 500 is still 498 steps ahead"
    ranks.step(450)
    assert ranks.due()[0].step == 500
    assert ranks.saves.want(500).number == 1
    ranks.saves.want(400)
    assert ranks.due() == {}
    assert ranks.saves.now.phase is Phase.FAILED
    assert "step 400 is over" in ranks.saves.now.why


def test_who_wants_the_same_waits_for_the_same() -> None:
    ranks = Ranks()
    assert ranks.saves.want(None).number == ranks.saves.want(None).number == 1
    due = ranks.due()
    assert ranks.saves.want(None).number == 1
    for rank, request in due.items():
        ranks.answer(request, rank, row("", 12, added(0, 12)))
    ranks.due()
    assert ranks.saves.want(None).number == 2
    assert ranks.document()["step"] is None


def test_where_ranks_are_missing_or_gone_it_is_said_what_it_waits_for() -> None:
    ranks = Ranks(3)
    ranks.saves.want(None)
    del ranks.state.tensors._rows[1]
    assert ranks.due() == {}
    assert ranks.saves.now.why == "2 of 3 ranks have told what their tensors are"
    ranks = Ranks()
    ranks.saves.want(None)
    due = ranks.due()
    ranks.state.apply([Facts(1, pid=101, step=ranks.at, status=Status.EXITED)], [], ranks.now_s)
    assert ranks.due() == {}
    assert due
    assert (ranks.saves.now.phase, ranks.saves.now.why) == (Phase.FAILED, "a rank has ended, or is another process now")


def test_ranks_that_end_after_they_have_told_have_told() -> None:
    ranks = Ranks()
    ranks.saves.want(None)
    for rank, request in ranks.due().items():
        ranks.answer(request, rank, row("", 12, added(0, 12)))
    ranks.state.apply([Facts(1, pid=101, step=ranks.at, status=Status.EXITED)], [], ranks.now_s)
    assert save_document(ranks.state, ranks.saves)["phase"] == "done"


def test_the_loop_sends_it_to_the_ranks_agents() -> None:
    loop = JobLoop("job", FakeJudge().make())
    link = FakeLink("node")
    loop.connect(link)
    ranks = Ranks()
    loop.state, loop._rank_nodes = ranks.state, {0: "node", 1: "node"}
    assert loop.commands(ranks.now_s) == []
    loop.saves.want(None)
    ((to, command),) = loop.commands(ranks.now_s + 5)
    assert to is link
    assert [(one.rank, one.sums) for one in command.digest.requests] == [(0, True), (1, True)]


def test_what_ranks_began_with_is_there_once_all_have_told_it_and_stays() -> None:
    ranks = Ranks()
    began = DigestRequest(serial=AT_START, step=0)
    assert ledger_document(gathered_at_start(ranks.state))["phase"] == "asked"  # it may be on its way
    ranks.step(2)
    document = ledger_document(gathered_at_start(ranks.state))
    assert (document["phase"], document["step"]) == ("failed", None)
    assert document["why"] == "0 of 2 ranks have told what they began with"
    ranks.answer(began, 0, row("0:2,0:3", 6, added(0, 6)))
    assert ledger_document(gathered_at_start(ranks.state))["phase"] == "asked"
    ranks.answer(began, 1, row("2:4,0:3", 6, added(6, 12)))
    assert ranks.document()["step"] is None
    ranks.saves.want(None)
    for rank, request in ranks.due().items():
        ranks.answer(request, rank, row("", 12, added(0, 12, bytes(48))))
    document = ledger_document(gathered_at_start(ranks.state))
    assert (document["phase"], document["step"]) == ("done", 0)
    assert document["tensors"][0]["sums"] == {"0": {DIGEST: "0,1"}}
    (later,) = ranks.only()["sums"].values()
    assert DIGEST not in later
    state = TensorInfo("Net.w.exp_avg", "state", shape=(2, 3))
    ranks.state.tensors.apply([LedgerNews(0, 100, 5, (state,), [5], [3], [9])], 2)
    assert [one["name"] for one in ledger_document(gathered_at_start(ranks.state))["tensors"]] == ["Net.w"]


def test_digests_of_all_ranks_are_there_after_that_step_too_but_not_because_of_the_start() -> None:
    ranks = saved([row("", 12, added(0, 12))], count=1)
    assert ranks.state.tensors.asked == {ranks.saves.now.step}
    ranks = Ranks(1)
    ranks.answer(DigestRequest(serial=AT_START, step=0), 0)
    assert ranks.state.tensors.asked == set()
