"""When a dump is taken, and when the job is ended."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.aggregator.fakes import incident, wait_for

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.watch.policy import Policy

NOW_S = 1000.0


@dataclass
class Node:
    """Ranks of one node, all alive; `holder` where a person holds them."""

    holder: str = ""

    def pid_of(self, rank: int) -> int | None:
        return 100 + rank

    def held_by(self, rank: int) -> str:
        return self.holder


@dataclass
class Acts:
    """A policy, and what it did."""

    on_hang: str
    folder: Path
    node: Node = field(default_factory=Node)
    during_dump: Callable[[], None] = lambda: None
    dumps: list[Path] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.policy = Policy(
            self.on_hang, self.folder.joinpath, None, self.node, self._dump, self.told.append, self._dumped, print
        )
        MADE.append(self)

    def _dump(self, folder: Path) -> None:
        self.during_dump()
        self.dumps.append(folder)

    @staticmethod
    def _dumped(known: Incident, folder: str) -> None:
        known.dump = folder

    def consider(self, known: Incident, at_s: float = NOW_S) -> None:
        """One look, and the end of a dump that it began."""
        self.policy.consider([known], at_s)
        wait_for(lambda: not self.policy.busy or self._again(known, at_s))

    def _again(self, known: Incident, at_s: float) -> bool:
        time.sleep(0.01)
        self.policy.consider([known], at_s)
        return not self.policy.busy


MADE: list[Acts] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().policy.close()


def hung(severity: Severity = Severity.CRITICAL) -> Incident:
    known = incident(kind="hang.rank_blocked")
    known.severity, known.resolved_s = severity, None
    return known


def test_a_job_that_looks_alive_for_the_time_of_the_dump_is_still_ended(tmp_path: Path) -> None:
    known = hung()
    acts = Acts("abort", tmp_path, during_dump=lambda: setattr(known, "severity", Severity.WARNING))
    acts.consider(known)
    assert (len(acts.dumps), acts.told) == (1, [])
    known.severity = Severity.CRITICAL
    acts.consider(known)
    assert [next(iter(message)) for message in acts.told] == ["abort"]
    assert len(acts.dumps) == 1


def test_what_a_watch_before_this_one_found_is_no_reason_to_end_a_job(tmp_path: Path) -> None:
    known = hung()
    known.restored, known.dump = True, "dumps/001"
    acts = Acts("abort", tmp_path)
    acts.consider(known)
    assert (acts.dumps, acts.told) == ([], [])
    known.restored = False  # found again
    acts.consider(known)
    assert ([next(iter(message)) for message in acts.told], acts.dumps) == (["abort"], [])


def test_ranks_that_have_not_met_yet_are_given_time_before_a_restart_is_spent_on_them(tmp_path: Path) -> None:
    known = incident(kind="hang.store_wait", opened_s=NOW_S)
    known.op_name = "INIT"
    acts = Acts("restart", tmp_path)
    for at_s, told in ((NOW_S + 1, 0), (NOW_S + 30, 0), (NOW_S + 61, 1)):
        acts.consider(known, at_s)
        assert len(acts.told) == told
    ended = Acts("abort", tmp_path)
    ended.consider(known, NOW_S + 1)
    assert len(ended.told) == 1


def test_a_job_is_ended_once(tmp_path: Path) -> None:
    known, acts = hung(), Acts("abort", tmp_path)
    for _ in range(3):
        acts.consider(known)
    assert len(acts.told) == 1


def test_a_wrong_result_is_no_reason_to_end_a_job_that_runs(tmp_path: Path) -> None:
    known, acts = hung(), Acts("abort", tmp_path)
    known.goes_on = True
    acts.consider(known)
    assert (acts.dumps, acts.told) == ([], [])


@pytest.mark.parametrize(("left_s", "dumped"), [(30.0, 0), (5.0, 1), (-1.0, 0)])
def test_a_late_ranks_wait_is_dumped_just_before_torch_gives_it_up(tmp_path: Path, left_s: float, dumped: int) -> None:
    known, acts = hung(Severity.WARNING), Acts("abort", tmp_path)
    known.times_out_s = NOW_S + left_s
    acts.consider(known)
    assert (len(acts.dumps), acts.told) == (dumped, [])


def test_a_job_that_a_person_holds_is_left_alone_until_let_go(tmp_path: Path) -> None:
    known, node = hung(), Node("pdb")
    acts = Acts("abort", tmp_path, node)
    acts.consider(known)
    assert acts.told == []
    node.holder = ""
    acts.consider(known)
    assert len(acts.told) == 1
