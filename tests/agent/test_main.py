"""The agent's loop: what is sent when, deep looks on command, and what it does not let itself be told."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.aggregator.fakes import FakeJudge, FakeObserver, rank_facts, wait_for

from diagd.daemon.agent.loop import AgentLoop
from diagd.daemon.agent.main import main
from diagd.daemon.agent.watchfulness import (
    COSTLY_SHARE,
    REFRESH_EVERY_S,
    SETTLED_AFTER_S,
    STEADY_AFTER_S,
    STEADY_LOOKS,
    Tracing,
)
from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.aggregator.service import GrpcServer
from diagd.daemon.config.settings import AgentConfig
from diagd.daemon.state.model import Detail, Exit, Facts, Operation, Stack, Status
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.tensors import LedgerNews
from diagd.probes.box.requests import Request, Target
from diagd.proto.v1.agent_pb2 import Command, CommandResult, DumpCommand, EndRankCommand, LookCommand


@dataclass
class FakeUplink:
    """Notes what is sent."""

    sent: list[tuple[list[Facts], list[Detail]]] = field(default_factory=list)
    answers: list[CommandResult] = field(default_factory=list)
    connections: int = 1

    def send(
        self, facts: Sequence[Facts], details: Sequence[Detail], now_s: float, ledgers: Sequence[LedgerNews] = (),
        signals: Sequence[SignalNews] = (),
    ) -> None:  # fmt: skip
        self.sent.append((list(facts), list(details)))

    def answer(self, result: CommandResult) -> None:
        self.answers.append(result)


@dataclass
class Agent:
    """An agent's loop with a clock that a test moves."""

    observer: FakeObserver = field(default_factory=FakeObserver)
    uplink: FakeUplink = field(default_factory=FakeUplink)
    now_s: float = 1000.0

    def __post_init__(self) -> None:
        self.loop = AgentLoop(self.observer, self.uplink, dump=lambda ranks, incident: Path("/d") / incident,
                              clock=lambda: self.now_s)  # fmt: skip

    def step(self, seconds: float = 0.5) -> tuple[list[Facts], list[Detail]]:
        self.now_s += seconds
        self.loop.step()
        return self.uplink.sent[-1]

    def ask(self, command: Command) -> CommandResult:
        self.loop.command(command)
        wait_for(lambda: self.uplink.answers)
        return self.uplink.answers.pop()


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made
    made.loop.stop()


def test_every_look_sends_the_numbers_and_only_details_that_are_news(agent: Agent) -> None:
    facts, details = agent.step()
    assert ([f.rank for f in facts], [d.rank for d in details]) == ([0, 1], [0, 1])
    assert agent.step() == (facts, [])
    agent.observer.found[1] = agent.observer.found[1].with_(operations=(Operation("SEND"),))
    assert [d.rank for d in agent.step()[1]] == [1]
    agent.observer.found[1] = agent.observer.found[1].with_(operations=())
    assert [d.operations for d in agent.step()[1]] == [()]


def test_details_are_sent_again_now_and_then_and_to_another_aggregator(agent: Agent) -> None:
    agent.step()
    assert agent.step()[1] == []
    assert len(agent.step(REFRESH_EVERY_S)[1]) == 2
    agent.uplink.connections += 1
    assert len(agent.step()[1]) == 2


def test_looks_are_closer_together_while_something_is_wrong(agent: Agent) -> None:
    agent.step()
    assert agent.loop.next_look_s == 0.5
    agent.observer.facts[0].wait_s = agent.now_s - 5
    agent.step()
    assert agent.loop.next_look_s == 0.25


def test_looks_are_further_apart_once_nothing_was_out_of_the_ordinary_for_long(agent: Agent) -> None:
    agent.step()
    agent.step(STEADY_AFTER_S - 5)
    assert agent.loop.next_look_s == 0.5
    agent.step(5)
    assert agent.loop.next_look_s == 2.0
    agent.ask(Command(id=1, look=LookCommand(history=[0, 1])))
    assert agent.loop.next_look_s == 2.0
    agent.ask(Command(id=2, look=LookCommand(stacks=[0])))  # something may be wrong
    assert agent.loop.next_look_s == 0.5
    agent.step(STEADY_AFTER_S)
    assert agent.loop.next_look_s == 2.0
    agent.observer.facts[0].wait_s = agent.now_s - 5
    agent.step()
    assert agent.loop.next_look_s == 0.25
    agent.observer.facts[0].wait_s = 0.0
    agent.step(STEADY_AFTER_S - 5)
    assert agent.loop.next_look_s == 0.5


def test_looks_that_cost_much_are_further_apart_within_seconds_where_nothing_is_out_of_the_ordinary(
    agent: Agent,
) -> None:
    agent.step()
    agent.loop._cost_s = COSTLY_SHARE * 0.5 * 100  # what is added by such a look is next to nothing
    agent.step(SETTLED_AFTER_S - 1)
    assert agent.loop.next_look_s == 0.5
    agent.step(1)
    assert agent.loop.next_look_s == 1.0
    agent.observer.facts[0].wait_s = agent.now_s - 5
    agent.step()
    assert agent.loop.next_look_s == 0.25


def test_ranks_that_are_at_work_and_in_operations_by_turns_are_in_order(agent: Agent) -> None:
    agent.step()
    for second in range(int(STEADY_AFTER_S) + 1):
        agent.observer.facts[0].status = (Status.RUNNING, Status.BLOCKED)[second % 2]
        agent.step(1.0)
    assert agent.loop.next_look_s == 2.0
    agent.observer.facts[0].status = Status.STOPPED
    agent.step()
    agent.observer.facts[0].status = Status.RUNNING
    agent.step(STEADY_AFTER_S - 5)
    assert agent.loop.next_look_s == 0.5


@pytest.mark.parametrize("all_get_on", [True, False])
def test_the_next_look_waits_only_while_all_ranks_are_seen_to_get_on(all_get_on: bool) -> None:
    observer = FakeObserver()
    observer.all_get_on = all_get_on
    times = iter((1000.0,))
    long = AgentLoop(
        observer, FakeUplink(), config=AgentConfig(look_s=0.05), clock=lambda: next(times, 1000.0 + STEADY_AFTER_S)
    )
    long.step()
    long.step()
    assert long.next_look_s == STEADY_LOOKS * 0.05
    looks = observer.looks
    long.start()  # which looks at once
    wait_for(lambda: observer.looks > looks)
    first_s = time.monotonic()
    wait_for(lambda: observer.looks > looks + 3)
    took_s = time.monotonic() - first_s
    long.stop()
    if all_get_on:
        assert took_s >= 2 * STEADY_LOOKS * 0.05  # of three rests, the first one may have begun before
    else:
        assert 3 <= observer.glances <= observer.looks - looks  # one in each rest, which ends with it


def test_ranks_that_send_and_receive_are_looked_at_as_often_as_ever(agent: Agent) -> None:
    agent.step()
    agent.observer.facts[1].extra["held_s|RECV|0"] = 0.5
    agent.step(STEADY_AFTER_S)
    assert agent.loop.next_look_s == 0.5


def test_scalars_are_read_at_every_second_look_and_at_the_last(agent: Agent) -> None:
    read: list[float] = []

    def signals(anew: bool) -> list[SignalNews]:
        read.append(agent.now_s)
        return []

    agent.observer.signals = signals  # type: ignore[method-assign]
    for _ in range(6):
        agent.step(0.5)
    assert len(read) == 3
    agent.loop.step(everything=True)
    assert len(read) == 4
    agent.uplink.connections += 1
    agent.step(0.01)
    assert len(read) == 5


def test_a_candidate_has_a_detail_but_no_numbers_until_it_is_a_rank(agent: Agent) -> None:
    agent.observer.found[1] = agent.observer.found[1].with_(is_rank=False)
    facts, details = agent.step()
    assert ([f.rank for f in facts], [d.is_rank for d in details]) == ([0], [True, False])
    assert [f.rank for f in agent.step()[0]] == [0]
    agent.observer.found[1] = agent.observer.found[1].with_(is_rank=True)
    assert [f.rank for f in agent.step()[0]] == [0, 1]


def test_a_look_that_was_asked_for_brings_what_was_asked_for(agent: Agent) -> None:
    stack = Stack(1000, "rank", "S", (), 1.0)
    agent.observer.found[0] = agent.observer.found[0].with_(stacks=(stack,), history=(Operation("SEND"),))
    assert all(not d.stacks for d in agent.step()[1])
    result = agent.ask(Command(id=7, look=LookCommand(stacks=[0, 1], recorder=[1])))
    assert (result.id, result.error) == (7, "")
    assert sorted(agent.observer.deep_looks) == [((0,), True, False, False), ((1,), True, True, False)]
    by_rank = {d.rank: d for d in agent.uplink.sent[-1][1]}
    assert by_rank[0].stacks == (stack,)
    assert by_rank[0].history == ()


def test_the_operations_of_a_rank_that_has_ended_are_told_with_its_end(agent: Agent) -> None:
    done = (Operation("ALLREDUCE"),)
    agent.observer.found[1] = agent.observer.found[1].with_(history=done)
    assert all(not d.history for d in agent.step()[1])
    agent.observer.found[1] = agent.observer.found[1].with_(exit=Exit(1.0, signal="SIGABRT"))
    assert [d.history for d in agent.step()[1]] == [done]


def test_a_look_that_fails_is_answered_with_its_error(agent: Agent) -> None:
    def deep(*_: object, **__: object) -> list[Detail]:
        raise KeyError(3)

    agent.observer.deep = deep  # type: ignore[method-assign]
    assert "KeyError" in agent.ask(Command(id=1, look=LookCommand(stacks=[0]))).error


def test_each_rank_is_asked_for_digests_and_what_fails_for_one_is_said(agent: Agent) -> None:
    command = Command(id=3)
    command.digest.requests.add(rank=9, pid=9, serial=4, step=60)
    asked = command.digest.requests.add(rank=1, pid=1001, serial=4, step=60, everything=True)
    asked.targets.add(row=5, first=0, stop=640, parts=64)
    assert "rank 9 has no ledger" in agent.ask(command).error
    assert agent.observer.asked == [(1, 1001, Request(4, 60, True, (Target(5, 0, 640, 64),)))]


def test_a_dump_is_answered_with_its_folder(agent: Agent) -> None:
    assert agent.ask(Command(id=1, dump=DumpCommand(incident="001-x"))).folder == "/d/001-x"


def test_only_a_process_that_is_the_ranks_is_ended(agent: Agent) -> None:
    agent.step()
    victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        refused = agent.ask(Command(id=1, end_rank=EndRankCommand(rank=0, pid=victim.pid)))
        assert "nothing is ended" in refused.error
        assert victim.poll() is None
        agent.observer.facts[0].pid = victim.pid
        agent.step()
        assert agent.ask(Command(id=2, end_rank=EndRankCommand(rank=0, pid=victim.pid))).error == ""
        assert victim.wait(10) == -signal.SIGKILL
    finally:
        victim.kill()
        victim.communicate()


def test_one_look_that_fails_costs_that_look_alone(agent: Agent) -> None:
    look = agent.observer.look
    failed: list[int] = []

    def sometimes(now_s: float) -> list[Facts]:
        if len(failed) < 3:
            failed.append(1)
            raise ZeroDivisionError
        return look(now_s)

    agent.observer.look = sometimes  # type: ignore[method-assign]
    agent.loop.start()
    wait_for(lambda: agent.uplink.sent)
    assert len(failed) == 3


def test_a_moment_under_our_own_tracer_is_no_stop_but_a_debugger_is() -> None:
    tracing = Tracing()
    tracing.hide([rank_facts(0, main_state="S", status=Status.BLOCKED)], 10.0)
    seen = []
    for now_s in (10.5, 12.0, 14.5):
        fact = rank_facts(0, main_state="t", status=Status.STOPPED)
        tracing.hide([fact], now_s)
        seen.append(fact.status)
    assert seen == [Status.BLOCKED, Status.BLOCKED, Status.STOPPED]


def test_a_stopped_rank_is_stopped_at_once() -> None:
    fact = rank_facts(0, main_state="T", status=Status.STOPPED)
    Tracing().hide([fact], 10.0)
    assert fact.status is Status.STOPPED


def test_an_agent_with_nothing_to_watch_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--aggregator", "127.0.0.1:1"]) == 2
    assert "--run-dir" in capsys.readouterr().err


def test_the_agents_process_reports_each_job_and_ends_at_sigterm(tmp_path: Path) -> None:
    for name, facts in (("one", '{"job_id": "the first"}'), ("two", "half a fi")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(facts)
    judge = FakeJudge()
    hub = Hub(time.time, lambda job_id: JobLoop(job_id, judge.make()))
    server = GrpcServer(hub, "127.0.0.1", 0)
    address = server.start()
    command = [sys.executable, "-m", "diagd.daemon.agent.main", "--aggregator", address, "--root", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    agent = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: hub.counters.streams == 2, 30)
    agent.send_signal(signal.SIGTERM)
    _, said = agent.communicate(timeout=20)
    server.stop()
    assert (agent.returncode, said) == (0, "")
    assert sorted(loop.state.job_id for loop in hub.loops()) == ["the first", "two"]
