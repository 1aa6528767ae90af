"""What is said on stderr, and when."""

from tests.aggregator.fakes import incident

from diagd.daemon.detectors.finding import Location, Severity
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.state.model import Frame
from diagd.daemon.watch.announcer import Announcer


class Heard:
    """An announcer with a patience of 60 s, and what it said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.announcer = Announcer(self._verdict, self.lines.append, hang_after_s=60.0)

    @staticmethod
    def _verdict(known: Incident) -> list[str]:
        return [f"{known.severity.value} {'open' if known.is_open else 'resolved'}", "because", "do"]

    def after(self, known: Incident, seconds: float) -> list[str]:
        self.announcer.consider([known], known.opened_s + seconds)
        return self.lines


def test_a_proved_hang_is_said_at_once_and_once() -> None:
    heard, known = Heard(), incident(severity=Severity.CRITICAL)
    assert heard.after(known, 0.0) == ["critical open\nbecause\ndo\n"]
    assert len(heard.after(known, 5.0)) == 1


def test_a_short_wait_is_never_spoken_of() -> None:
    heard, known = Heard(), incident(severity=Severity.WARNING)
    assert heard.after(known, 17.9) == []
    known.resolved_s = known.opened_s + 17.95
    assert heard.after(known, 30.0) == []


def test_a_long_wait_is_said_and_its_end_in_one_line() -> None:
    heard, known = Heard(), incident(severity=Severity.WARNING)
    assert heard.after(known, 18.0) == ["warning open\nbecause\ndo\n"]
    known.resolved_s = known.opened_s + 20.0
    assert heard.after(known, 20.0)[1:] == ["warning resolved\n"]


def test_a_place_that_becomes_known_better_is_said_once_more() -> None:
    heard, known = Heard(), incident(severity=Severity.CRITICAL)
    heard.after(known, 0.0)
    for line in (9, 16, 9):
        known.locations = (Location(1, Frame("evaluate", "/job/train.py", line)),)
        heard.after(known, 1.0)
    assert heard.lines[1:] == ["critical open\n"]


def slows() -> Incident:
    known = incident(severity=Severity.WARNING)
    known.kind, known.goes_on = "slow.straggler", True
    return known


def test_a_rank_that_is_slow_at_each_step_is_said_within_seconds() -> None:
    heard, known = Heard(), slows()
    assert heard.after(known, 4.9) == []
    assert heard.after(known, 5.0) == ["warning open\nbecause\ndo\n"]


def test_a_cause_that_changes_for_a_moment_is_not_said_again() -> None:
    heard, known = Heard(), slows()
    heard.after(known, 5.0)
    for at_s, kind in ((8.0, "slow.host"), (20.0, "slow.host"), (22.0, "slow.straggler"), (80.0, "slow.straggler")):
        known.kind = kind
        assert len(heard.after(known, at_s)) == 1
    known.kind = "slow.host"
    heard.after(known, 81.0)
    assert len(heard.after(known, 99.0)) == 2


def test_what_is_no_wait_is_said_at_once_however_mild() -> None:
    heard, known = Heard(), incident(severity=Severity.WARNING)
    known.kind = "training.dead_parameters"
    assert heard.after(known, 0.0) == ["warning open\nbecause\ndo\n"]


def test_a_stopped_rank_that_others_wait_for_is_said_at_once_and_a_suspended_job_is_not() -> None:
    heard, known = Heard(), incident(severity=Severity.WARNING)
    known.kind, known.waiting_ranks = "hang.rank_stopped", ()
    assert heard.after(known, 2.0) == []
    known.waiting_ranks = (1,)
    assert heard.after(known, 2.0) == ["warning open\nbecause\ndo\n"]


def test_a_wait_that_turns_critical_is_said_at_once() -> None:
    heard, known = Heard(), incident(severity=Severity.WARNING)
    heard.after(known, 2.0)
    known.severity = Severity.CRITICAL
    assert heard.after(known, 3.0) == ["critical open\nbecause\ndo\n"]


def test_what_was_said_in_full_and_grows_is_said_again_only_where_it_is_new() -> None:
    heard, known = Heard(), incident(severity=Severity.WARNING)
    heard.after(known, 18.0)
    known.severity = Severity.CRITICAL
    assert heard.after(known, 60.0)[1:] == ["critical open\n"]


def test_what_is_only_worth_knowing_gets_one_line_in_all() -> None:
    heard, known = Heard(), incident(severity=Severity.INFO)
    assert heard.after(known, 18.0) == ["info open\n"]
    known.resolved_s = known.opened_s + 20.0
    assert heard.after(known, 20.0)[1:] == []


def test_what_turns_out_to_be_worse_than_worth_knowing_is_said_whole() -> None:
    heard, known = Heard(), incident(severity=Severity.INFO)
    heard.after(known, 18.0)
    known.severity = Severity.CRITICAL
    assert heard.after(known, 19.0)[1:] == ["critical open\nbecause\ndo\n"]


def test_that_a_wait_has_become_longer_is_said_in_its_headline_alone() -> None:
    heard, known = Heard(), incident(severity=Severity.WARNING)
    facts = "no sign of life for 7.5 s, 3 % of a core, 12 MiB, rank 1 in load (data.py:41)"
    heard.announcer._verdict = lambda _: ["headline", facts]
    heard.after(known, 18.0)
    known.severity = Severity.CRITICAL
    facts = "no sign of life for 60.1 s, 0 % of a core, 9 MiB, rank 1 in load (data.py:41)"
    assert heard.after(known, 60.0)[1:] == ["headline\n"]
    known.ranks = (1, 2)
    facts = "no sign of life for 61 s, 0 % of a core, 9 MiB, rank 2 in load (data.py:44)"
    assert heard.after(known, 61.0)[2:] == [f"headline\n{facts}\n"]
