"""One job's loop, driven by hand: what is applied, what is asked for and how often."""

from collections.abc import Iterator

import pytest
from tests.aggregator.fakes import FakeBook, FakeJudge, FakeLink, Wanted, incident
from tests.detectors import states

from diagd.daemon.agent.wire import detail_message, facts_columns
from diagd.daemon.aggregator.judging import Judge, default_judge
from diagd.daemon.aggregator.loop import LONGER_S, WITHOUT_NEWS_S, JobLoop
from diagd.daemon.detectors import registry
from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Facts
from diagd.proto.v1.agent_pb2 import Command, CommandResult, ConnectRequest, Window


def window(facts: list[Facts], details: list[Detail], time_s: float) -> ConnectRequest:
    return ConnectRequest(
        window=Window(time_s=time_s, facts=facts_columns(facts), details=[detail_message(d) for d in details])
    )


def loop_with(judge: FakeJudge, *ranks: int, node: str = "n1") -> tuple[JobLoop, FakeLink]:
    loop, link = JobLoop("job", judge.make()), FakeLink(node)
    loop.connect(link)
    loop.receive(link, window([Facts(r, pid=r + 1) for r in ranks], [], 100.0), 100.0)
    loop.tick(100.0)
    return loop, link


def asked(loop: JobLoop, now_s: float) -> list[list[int]]:
    return [list(command.look.stacks) for _, command in loop.commands(now_s)]


def answer(loop: JobLoop, link: FakeLink, command_id: int, now_s: float) -> None:
    loop.receive(link, ConnectRequest(result=CommandResult(id=command_id)), now_s)
    loop.tick(now_s)


def test_a_window_counts_by_its_own_time() -> None:
    loop, link = loop_with(FakeJudge(), 0)
    loop.receive(link, window([Facts(0, pid=1, step=5)], [Detail(0, pid=1, host="h")], 101.0), 130.0)
    loop.tick(130.0)
    assert loop.state.columns.seen_s[0] == 101.0
    assert loop.state.columns.step[0] == 5
    assert loop.state.detail(0).host == "h"
    assert loop.state.now_s == 130.0


def test_a_rank_is_not_looked_at_twice_at_a_time() -> None:
    judge = FakeJudge(wanted=Wanted(stacks=(0, 1)))
    loop, link = loop_with(judge, 0, 1)
    assert asked(loop, 100.0) == [[0, 1]]
    assert asked(loop, 101.5) == []
    answer(loop, link, 1, 101.5)
    assert asked(loop, 101.6) == [[0, 1]]


def test_deep_looks_come_every_second_at_first_and_every_five_later() -> None:
    judge = FakeJudge(wanted=Wanted(stacks=(0,)))
    loop, link = loop_with(judge, 0)
    times, now_s, number = [], 100.0, 0
    while now_s < 125.0:
        if commands := loop.commands(now_s):
            times.append(now_s - 100.0)
            number = commands[0][1].id
            answer(loop, link, number, now_s + 0.1)
        now_s += 0.25
    assert times == [*map(float, range(10)), 14.0, 19.0, 24.0]


def test_an_answer_that_never_comes_does_not_end_the_looking() -> None:
    judge = FakeJudge(wanted=Wanted(stacks=(0,)))
    loop, _ = loop_with(judge, 0)
    assert asked(loop, 100.0) == [[0]]
    assert asked(loop, 107.9) == []
    assert asked(loop, 108.1) == [[0]]


def test_each_node_is_asked_for_its_own_ranks() -> None:
    judge = FakeJudge(wanted=Wanted(stacks=(0, 9), recorder=(9,)))
    loop, _ = loop_with(judge, 0)
    other = FakeLink("n2")
    loop.connect(other)
    loop.receive(other, window([Facts(9, pid=5)], [], 100.0), 100.0)
    loop.tick(100.0)
    by_node = {link.node: command for link, command in loop.commands(100.0)}
    assert list(by_node["n1"].look.stacks) == [0]
    assert list(by_node["n1"].look.recorder) == []
    assert list(by_node["n2"].look.stacks) == [9]
    assert list(by_node["n2"].look.recorder) == [9]


def test_a_node_that_is_gone_is_not_asked() -> None:
    judge = FakeJudge(wanted=Wanted(stacks=(0,)))
    loop, link = loop_with(judge, 0)
    loop.disconnect(link)
    assert loop.commands(100.0) == []
    back = FakeLink("n1")
    loop.connect(back)
    assert [link for link, _ in loop.commands(101.0)] == [back]


def test_an_old_link_that_ends_late_does_not_cut_off_the_new_one() -> None:
    judge = FakeJudge(wanted=Wanted(stacks=(0,)))
    loop, old = loop_with(judge, 0)
    new = FakeLink("n1")
    loop.connect(new)
    loop.disconnect(old)
    assert [link for link, _ in loop.commands(100.0)] == [new]


def test_the_report_is_new_when_an_incident_changes_and_only_then() -> None:
    judge = FakeJudge()
    loop, _ = loop_with(judge, 0)
    before = loop.revision
    assert loop.tick(101.0) == []
    assert loop.revision == before
    judge.findings = [incident()]
    assert [i.id for i in loop.tick(102.0)] == ["001-abc"]
    assert loop.revision > before
    assert loop.tick(103.0) == []
    assert loop.incidents_opened == {("hang.rank_blocked", "critical"): 1}


def test_a_detector_that_fails_costs_a_verdict_and_not_the_watch() -> None:
    def broken(state: JobState) -> tuple[()]:
        raise ZeroDivisionError

    loop = JobLoop("job", Judge(broken, lambda state: Wanted(), FakeBook))
    assert loop.tick(100.0) == []
    assert loop.counters.failures == 1


def test_one_detector_that_fails_takes_none_of_the_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(scene: Scene) -> Iterator[Finding]:
        yield from ()
        raise ZeroDivisionError

    made = states.job(3, 10).waits(0, seq=9).waits(1, seq=9).outside(2, "load").passes(12)
    monkeypatch.setattr(registry, "PROMPT", (broken, *registry.PROMPT, broken))
    monkeypatch.setattr(registry, "OF_TRAINING", (broken,))
    with pytest.raises(ZeroDivisionError):
        registry.detect(made.state)
    (found,) = default_judge().detect(made.state)
    assert (found.kind, found.ranks, made.state.failures) == ("hang.rank_blocked", (2,), 3)


def test_failures_of_detectors_are_counted() -> None:
    def failing(state: JobState) -> tuple[()]:
        state.failures += 2
        return ()

    loop = JobLoop("job", Judge(failing, lambda state: Wanted(), FakeBook))
    loop.tick(100.0)
    assert loop.counters.failures == 2


@pytest.mark.parametrize(
    ("further", "suspected", "patience_s"),
    [(True, False, LONGER_S), (False, False, WITHOUT_NEWS_S), (True, True, WITHOUT_NEWS_S)],
)
def test_without_news_a_job_whose_ranks_all_went_on_is_judged_later(
    further: bool, suspected: bool, patience_s: float
) -> None:
    judged: list[float] = []

    def noting(state: JobState) -> tuple[()]:
        judged.append(state.now_s)
        return ()

    wanted = Wanted(stacks=(0,) if suspected else ())
    loop = JobLoop("job", Judge(noting, lambda state: wanted, FakeBook))
    loop.connect(FakeLink())
    for now_s in (100.0, 102.0):
        steps = [Facts(0, pid=1, step=int(now_s)), Facts(1, pid=2, step=int(now_s) if further else 5)]
        loop.receive(FakeLink(), window(steps, [], now_s), now_s)
        loop.tick(now_s)
        loop.commands(now_s)
    assert judged == [100.0, 102.0]
    loop.tick(102.0 + patience_s - 0.01)
    assert judged == [100.0, 102.0]
    loop.tick(102.0 + patience_s)
    assert judged == [100.0, 102.0, 102.0 + patience_s]


@pytest.mark.parametrize("unsure", [False, True])
def test_a_job_that_goes_on_is_judged_at_each_look_while_something_has_to_be_found_again(unsure: bool) -> None:
    judged: list[float] = []

    def noting(state: JobState) -> tuple[()]:
        judged.append(state.now_s)
        return ()

    loop = JobLoop("job", Judge(noting, lambda state: Wanted(), FakeBook))
    loop.book.unsure = unsure  # type: ignore[misc]
    loop.connect(FakeLink())
    for now_s in (100.0, 100.25, 100.5, 101.0):
        loop.receive(FakeLink(), window([Facts(0, pid=1, step=int(4 * now_s))], [], now_s), now_s)
        loop.tick(now_s)
    assert judged == ([100.0, 100.25, 100.5, 101.0] if unsure else [100.0, 101.0])


def test_a_job_that_was_stopped_on_purpose_and_starts_again_is_judged_anew() -> None:
    loop, link = loop_with(FakeJudge(), 0)
    loop.stopping(101.0)
    loop.tick(101.0)
    assert loop.state.stopping_s == 101.0
    loop.receive(link, window([Facts(0, pid=9)], [Detail(0, pid=9, attempt=1)], 105.0), 105.0)
    loop.tick(105.0)
    assert loop.state.stopping_s is None


def test_no_rank_is_looked_at_after_the_end() -> None:
    judge = FakeJudge(wanted=Wanted(stacks=(0,)))
    loop, _ = loop_with(judge, 0)
    loop.ended(0, 101.0)
    loop.tick(101.0)
    assert loop.commands(101.0) == []
    assert (loop.state.ended_s, loop.state.exit_code) == (101.0, 0)


def test_commands_have_numbers_of_their_own() -> None:
    loop = JobLoop("job", FakeJudge().make())
    assert [loop.new_command(), loop.new_command()] == [Command(id=1), Command(id=2)]
