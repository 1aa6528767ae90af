"""Findings become incidents in one place: when they open, change, are explained and are over."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.detectors.states import Job, at, job
from tests.detectors.training import Training, with_more

from diagd.daemon.aggregator.loop import restored_incident, stored_form
from diagd.daemon.detectors.apart import SHOWS_IN
from diagd.daemon.detectors.consequences import without_consequences
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.registry import detect
from diagd.daemon.incidents.book import IncidentBook
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Ending


class Watched:
    """A job and its book, judged twice a second as the aggregator does."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.book = IncidentBook()
        self.changes: list[Incident] = []

    def passes(self, seconds: float) -> "Watched":
        self.job.report()
        for _ in range(round(seconds * 2)):
            self.job.passes(0.5)
            self.changes += self.book.update(detect(self.job.state), self.job.state)
        return self

    @property
    def all(self) -> list[Incident]:
        return self.book.incidents

    @property
    def only(self) -> Incident:
        assert len(self.all) == 1, [(i.kind, i.ranks, i.severity, i.resolved_s) for i in self.all]
        return self.all[0]

    def open(self) -> set[tuple[str, tuple[int, ...], str]]:
        return {(i.kind, i.ranks, i.severity.value) for i in self.all if i.is_open}


def stuck(hang_after_s: float = 10) -> Watched:
    return Watched(job(3, hang_after_s).waits(0, seq=5).waits(1, seq=5).outside(2))


def severities(incidents: Iterable[Incident]) -> set[Severity]:
    return {i.severity for i in incidents}


# --- one fault is one incident


def test_one_fault_is_one_incident_as_it_grows_from_a_warning_to_critical() -> None:
    seen = stuck().passes(8)
    assert (seen.only.severity, seen.only.peak_severity) == (Severity.WARNING, Severity.WARNING)
    first = seen.only.id
    seen.passes(4)
    assert (seen.only.severity, seen.only.peak_severity, seen.only.id) == (Severity.CRITICAL, Severity.CRITICAL, first)


def test_one_fault_is_one_incident_as_its_kind_becomes_known() -> None:
    late = Watched(job(3, hang_after_s=10).waits(0, seq=5).waits(1, seq=5).outside(2).works(2, "cpu")).passes(8)
    assert late.open() == {("slow.straggler", (2,), "warning")}
    late.job.rest(2)
    late.passes(14)
    assert late.only.kind == "hang.rank_blocked"
    assert late.only.severity == Severity.CRITICAL


def test_a_late_rank_that_arrives_with_another_operation_is_still_one_incident() -> None:
    late = Watched(job(3).waits(0, seq=5).waits(1, seq=5).outside(2).works(2, "cpu")).passes(8)
    late.job.rest(2).waits(2, "BARRIER", seq=5)
    late.passes(5)
    assert late.only.kind == "hang.collective_mismatch"
    assert (late.only.ranks, late.only.severity) == ((2,), Severity.CRITICAL)


def test_two_independent_faults_are_two_incidents() -> None:
    two = job(4, hang_after_s=10, groups={"a": (0, 1), "b": (2, 3)})
    two.waits(0, seq=1, group="a").outside(1).waits(2, seq=1, group="b").outside(3, "upload", 90)
    assert Watched(two).passes(12).open() == {
        ("hang.rank_blocked", (1,), "critical"), ("hang.rank_blocked", (3,), "critical"),
    }  # fmt: skip


def test_ranks_that_rest_at_the_same_place_are_one_fault() -> None:
    all_three = job(3, hang_after_s=10).outside(0).outside(1).outside(2)
    assert Watched(all_three).passes(12).open() == {("hang.rank_blocked", (0, 1, 2), "critical")}


def test_ids_are_told_apart_and_the_most_severe_comes_first() -> None:
    two = job(4, hang_after_s=10, groups={"a": (0, 1), "b": (2, 3)})
    two.waits(0, seq=1, group="a").outside(1).works(1, "cpu").waits(2, seq=1, group="b").outside(3)
    seen = Watched(two).passes(12)
    assert [i.severity for i in seen.all] == [Severity.CRITICAL, Severity.WARNING]
    assert len({i.id for i in seen.all}) == 2


def test_an_incident_of_an_earlier_book_is_kept() -> None:
    before = stuck().passes(12).only
    assert IncidentBook([before]).incidents == [before]


# --- believed


def test_what_is_not_proven_must_be_found_again() -> None:
    waiting = stuck()
    waiting.passes(4)
    assert waiting.all == []
    assert len(waiting.passes(1).all) == 1


def test_what_is_proven_is_told_at_once() -> None:
    met = Watched(job(2).waits(0, seq=5).waits(1, "BARRIER", seq=5)).passes(1.5)
    assert met.only.kind == "hang.collective_mismatch"


def test_a_death_is_told_at_once() -> None:
    assert Watched(job(2).train(0).dies(1, signal="SIGKILL")).passes(0.5).only.kind == "exit.killed"


def test_what_is_seen_once_and_then_no_more_is_never_told() -> None:
    once = stuck().passes(4)
    once.job.goes_on(0, 1, 2).train(0, 1, 2)
    assert once.passes(10).all == []


# --- over


def test_a_wait_that_ends_is_resolved_as_a_warning_and_keeps_its_peak() -> None:
    seen = stuck().passes(12)
    seen.job.goes_on(0, 1, 2).train(0, 1, 2)
    seen.passes(5)
    assert not seen.only.is_open
    assert (seen.only.severity, seen.only.peak_severity) == (Severity.WARNING, Severity.CRITICAL)
    assert seen.only.kind == "hang.rank_blocked"


def test_a_wait_that_ends_is_told_as_a_change() -> None:
    seen = stuck().passes(12)
    seen.job.goes_on(0, 1, 2).train(0, 1, 2)
    seen.passes(5)
    assert seen.changes[-1] is seen.only
    assert seen.changes[-1].resolved_s is not None


def test_an_incident_is_not_over_at_the_first_look_that_misses_it() -> None:
    seen = stuck().passes(12)
    state = seen.job.passes(1).state
    assert seen.book.update((), state) == []
    assert seen.only.is_open


def test_the_same_wait_later_is_another_incident() -> None:
    seen = stuck().passes(12)
    seen.job.goes_on(0, 1, 2).train(0, 1, 2)
    seen.passes(5)
    seen.job.rest(0, 1, 2).waits(0, seq=9).waits(1, seq=9).outside(2)
    seen.passes(12)
    assert len(seen.all) == 2


def test_a_wait_that_ended_by_itself_is_told_again_only_where_it_lasts_longer() -> None:
    seen = stuck(hang_after_s=30).passes(9)
    for lasts_s, told in ((9, 1), (11, 1), (18, 2), (40, 3)):
        seen.job.goes_on(0, 1, 2).train(0, 1, 2)
        seen.passes(5)
        seen.job.rest(0, 1, 2).waits(0, seq=9).waits(1, seq=9).outside(2)
        seen.passes(lasts_s)
        assert len(seen.all) == told
    assert seen.open() == {("hang.rank_blocked", (2,), "critical")}


def test_what_a_job_goes_on_with_is_one_incident_though_its_evidence_comes_and_goes() -> None:
    cause = Cause("far", "it is too high", 0.9, Basis.OBSERVATION, (Evidence("lr 3", "signals"),))
    found = Finding(
        "training.lr_fault", Severity.WARNING, (0,), "too high", (cause,), sure=True, goes_on=True, key="lr"
    )
    book, state, changes = IncidentBook(), JobState(), []
    for second in range(100, 300):
        state.tick(float(second))
        seen = [found] if second % 17 < 3 and not 180 < second < 230 else []
        changes += [one.is_open for one in book.update(seen, state)]
    assert changes == [True, False, True]
    assert [one.is_open for one in book.incidents] == [True]


@pytest.mark.parametrize(("rooted", "kinds"), [(False, 1), (True, 2)])
def test_what_follows_from_a_fault_that_stands_is_none_of_its_own_though_a_look_misses_that(
    rooted: bool, kinds: int
) -> None:
    cause = Cause("far", "it is too high", 0.9, Basis.OBSERVATION, (Evidence("lr 3", "signals"),))
    rate = Finding("training.lr_fault", Severity.WARNING, (0,), "too high", (cause,), sure=True, goes_on=True,
                   explains=("training.loss_",))  # fmt: skip
    loss = replace(rate, kind="training.loss_divergence", explains=(), rooted=rooted)
    book, state = IncidentBook(), JobState()
    for second, seen in ((100, [rate]), (101, [loss]), (110, [loss])):
        state.tick(float(second))
        book.update(seen, state)
    assert len(book.incidents) == kinds


def test_a_job_that_ends_well_leaves_nothing_open() -> None:
    seen = stuck().passes(12)
    seen.job.state.end(0, seen.job.now_s)
    seen.passes(1)
    assert not seen.only.is_open


def test_slowness_that_comes_and_goes_is_one_incident_and_stays_open_where_it_lasted_to_the_last_step() -> None:
    training = Training(3).goes(10).goes(8, with_more(1, "forward", 0.03, cpu=0.068))
    (slow,) = training.find()
    state, book = training.state, IncidentBook()
    for second in range(40):
        book.update((slow,) if second % 10 < 3 or second > 33 else (), state)
        state.now_s += 1.0
        state.columns.step_s[:3] = state.now_s
    book.update((slow,), state)
    state.now_s += 1.0
    book.update((slow,), state)
    assert [(one.kind, one.is_open) for one in book.incidents] == [("slow.straggler", True)]
    for _ in range(30):  # the steps are made: what follows them, a last checkpoint say, shows nothing
        state.now_s += 1.0
        book.update((), state)
    state.end(0, state.now_s)
    book.update((), state)
    assert [one.is_open for one in book.incidents] == [True]


def test_slowness_is_over_where_the_ranks_make_steps_without_it() -> None:
    training = Training(3).goes(10).goes(8, with_more(1, "forward", 0.03, cpu=0.068))
    (slow,), book = training.find(), IncidentBook()
    for _ in range(3):
        book.update((slow,), training.goes(1, with_more(1, "forward", 0.03, cpu=0.068)).state)
    book.update((), training.goes(2.5).state)
    assert [(one.kind, one.is_open) for one in book.incidents] == [("slow.straggler", False)]


def test_slowness_that_the_last_steps_no_longer_show_is_over_with_a_job_that_ends_well() -> None:
    training = Training(3).goes(10).goes(8, with_more(1, "forward", 0.03, cpu=0.068))
    (slow,), book = training.find(), IncidentBook()
    for _ in range(3):
        book.update((slow,), training.goes(1, with_more(1, "forward", 0.03, cpu=0.068)).state)
    book.update((), training.goes(1).state)
    state = training.goes(0.5).state
    state.end(0, state.now_s)
    book.update((), state)
    assert [(one.kind, one.is_open) for one in book.incidents] == [("slow.straggler", False)]


@pytest.mark.parametrize(("seconds", "is_open"), [(3, False), (9, True)])
def test_slowness_that_is_too_young_at_the_jobs_end_to_be_known_to_last_is_over(seconds: int, is_open: bool) -> None:
    slowly = with_more(1, "forward", 0.03, cpu=0.068)
    training = Training(3).goes(10).goes(8, slowly)
    (slow,), book = training.find(), IncidentBook()
    for _ in range(seconds):
        book.update((slow,), training.goes(1, slowly).state)
    training.state.end(0, training.state.now_s)
    book.update((), training.state)
    assert [one.is_open for one in book.incidents] == [is_open]


def test_slowness_is_over_where_ranks_that_make_no_steps_go_on_without_it() -> None:
    training = Training(3).goes(10).goes(8, with_more(1, "forward", 0.03, cpu=0.068))
    (slow,), book, state = training.find(), IncidentBook(), training.state
    for second in range(8):
        state.columns.step[:3], state.columns.step_s[:3] = -1, 0.0
        book.update((slow,) if second < 4 else (), state)
        state.now_s += 1.0
        state.columns.program_moved_s[:3] = state.now_s
    assert [one.is_open for one in book.incidents] == [False]


@pytest.mark.parametrize("way", ["exception", "shutdown"])
def test_a_hang_whose_rank_is_on_its_way_out_is_not_over(way: str) -> None:
    seen = stuck().passes(12)
    seen.job.works(2, "cpu")
    if way == "exception":
        seen.job.raising(2, "KeyboardInterrupt")
    else:
        seen.job.leaves(2)
    seen.passes(6)
    assert (seen.only.kind, seen.only.severity, seen.only.is_open) == ("hang.rank_blocked", Severity.CRITICAL, True)


def test_a_hang_that_is_not_found_is_not_over_while_nothing_moves() -> None:
    seen = stuck().passes(12)
    for _ in range(20):
        seen.book.update((), seen.job.passes(0.5).state)
    assert (seen.only.is_open, seen.only.severity) == (True, Severity.CRITICAL)
    seen.job.goes_on(0, 1, 2).train(0, 1, 2)
    seen.passes(4)
    assert not seen.only.is_open


# --- a watcher that was started again


def taken_up(before: Watched) -> Watched:
    """The same job under a watcher that has just been started, with what the store kept of its incidents."""
    job = before.job
    job.state = JobState("job", hang_after_s=job.state.hang_after_s, started_s=job.state.started_s, now_s=job.now_s)
    anew = Watched(job)
    anew.book = IncidentBook([restored_incident(stored_form(known)) for known in before.all])
    return anew


def test_a_hang_that_lasts_stays_one_incident_when_the_watch_is_started_again() -> None:
    before = stuck().passes(12)
    anew = taken_up(before).passes(20)
    assert (anew.only.id, anew.only.is_open, anew.only.severity) == (before.only.id, True, Severity.CRITICAL)
    assert all(one.severity is Severity.CRITICAL and one.is_open for one in anew.changes)
    assert not anew.only.restored


def test_a_hang_that_ended_while_nobody_watched_is_over() -> None:
    anew = taken_up(stuck().passes(12))
    anew.job.goes_on(0, 1, 2).train(0, 1, 2)
    assert anew.passes(1).only.is_open
    assert not anew.passes(25).only.is_open


def test_what_goes_on_is_known_as_such_by_the_watch_that_is_started_again() -> None:
    training = Training(3).goes(10).goes(8, with_more(1, "forward", 0.03, cpu=0.068))
    (slow,), book = training.find(), IncidentBook()
    book.update((slow,), training.state)
    training.state.now_s += 1.0
    book.update((slow,), training.state)
    (kept,) = (restored_incident(stored_form(known)) for known in book.incidents)
    assert (kept.goes_on, kept.explains, kept.times_out_s) == (True, slow.explains, slow.times_out_s)


def test_what_stood_when_the_job_fell_stays_open() -> None:
    seen = stuck().passes(12)
    seen.job.dies(0, code=1).dies(1, code=1).dies(2, signal="SIGKILL")
    seen.job.state.end(1, seen.job.now_s)
    seen.passes(5)
    assert seen.only.is_open
    assert (seen.only.kind, seen.only.severity) == ("hang.rank_blocked", Severity.CRITICAL)


def test_milder_news_of_a_moment_does_not_soften_an_incident() -> None:
    seen = stuck().passes(12)
    seen.job.works(2, "cpu")
    seen.passes(0.5)
    seen.job.rest(2)
    assert seen.passes(0.5).only.severity == Severity.CRITICAL


def test_a_rank_that_moves_again_and_stays_late_softens_it() -> None:
    seen = stuck().passes(12)
    seen.job.works(2, "cpu", "frames")
    seen.passes(8)
    assert seen.open() == {("slow.straggler", (2,), "warning")}
    assert seen.only.peak_severity == Severity.CRITICAL


def test_an_aborted_job_keeps_the_reason_and_opens_nothing_more() -> None:
    seen = stuck().passes(12)
    seen.job.state.stopping_s = seen.job.now_s
    seen.job.dies(0, signal="SIGTERM").dies(1, signal="SIGTERM").dies(2, signal="SIGKILL")
    seen.passes(3)
    seen.job.state.end(-15, seen.job.now_s)
    seen.passes(3)
    assert seen.open() == {("hang.rank_blocked", (2,), "critical")}
    assert len(seen.all) == 1


# --- consequences


def test_what_follows_a_death_opens_nothing() -> None:
    fell = Watched(job(4).waits(0, seq=5).waits(1, seq=5).waits(2, seq=5).raises(3)).passes(1)
    fell.job.wait_raises(0)
    fell.passes(1)
    fell.job.dies(1, signal="SIGABRT").dies(2, signal="SIGTERM")
    fell.passes(3)
    assert fell.open() == {("exit.error", (3,), "critical")}
    assert len(fell.all) == 1


def test_the_deaths_that_follow_a_critical_hang_open_nothing() -> None:
    met = Watched(job(3).waits(0, seq=5, numel=4).waits(1, seq=5, numel=4).waits(2, seq=5, numel=8)).passes(2)
    met.job.dies(0, signal="SIGSEGV")
    met.passes(2)
    met.job.raises(1, "RuntimeError", "something else", at("cleanup"))
    met.passes(2)
    assert met.open() == {("hang.collective_mismatch", (2,), "critical")}
    assert len(met.all) == 1


def test_a_death_ends_what_was_said_of_the_ranks_lateness() -> None:
    late = Watched(job(3).waits(0, seq=5).waits(1, seq=5).outside(2).works(2, "cpu")).passes(8)
    late.job.dies(2, signal="SIGKILL")
    late.passes(3)
    assert late.open() == {("exit.killed", (2,), "critical")}


def test_a_death_far_from_a_mere_warning_is_told() -> None:
    late = Watched(job(4, groups={"a": (0, 1)}).waits(0, seq=5, group="a").outside(1).works(1, "cpu")).passes(8)
    late.job.dies(3, signal="SIGKILL")
    late.passes(1)
    assert ("exit.killed", (3,), "critical") in late.open()


def test_an_early_exit_is_one_incident_when_the_others_then_fall() -> None:
    left = Watched(job(3).waits(0, seq=5).waits(1, seq=5).dies(2, code=0)).passes(3)
    left.job.wait_raises(0).wait_raises(1)
    left.passes(3)
    assert left.open() == {("exit.early", (2,), "critical")}
    assert len(left.all) == 1


def test_a_shutdown_that_becomes_an_exit_is_one_incident() -> None:
    left = Watched(job(3).waits(0, seq=5).waits(1, seq=5).leaves(2)).passes(3)
    assert left.only.kind == "exit.early"
    left.job.dies(2, code=0)
    assert len(left.passes(3).all) == 1


def test_a_death_seen_first_without_its_code_is_one_incident_once_the_code_comes() -> None:
    """The launcher's word may come some looks after the process is gone."""
    ending = Ending("exception", "ValueError", "bad", 1, (at("load"),))
    late = Watched(job(3).waits(0, seq=5).waits(1, seq=5).dies(2)).passes(3)
    assert late.only.kind == "exit.killed"
    late.job.dies(2, code=1, ending=ending)
    late.passes(3)
    assert late.open() == {("exit.error", (2,), "critical")}
    assert len(late.all) == 1


# --- restart


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_new_attempt_resolves_the_old_ones_death_for_good(order: tuple[int, ...]) -> None:
    again = Watched(job(3).waits(0, seq=5).waits(1, seq=5).dies(2, signal="SIGKILL")).passes(1)
    again.job.dies(0, signal="SIGTERM").dies(1, signal="SIGTERM")
    again.passes(1)
    for rank in order:
        again.job.restarts(rank).works(rank, "cpu")
        again.passes(1.5)
    again.passes(5)
    assert not again.only.is_open
    assert (again.only.attempt, again.only.peak_severity) == (0, Severity.CRITICAL)


def test_a_death_in_the_new_attempt_is_a_new_incident() -> None:
    again = Watched(job(2).waits(0, seq=5).dies(1, signal="SIGKILL")).passes(1)
    again.job.restarts(0, 1)
    again.passes(3)
    again.job.waits(0, seq=2).dies(1, signal="SIGKILL")
    again.passes(2)
    assert [(i.attempt, i.is_open) for i in again.all] == [(1, True), (0, False)]


def test_a_hang_ended_by_a_restart_is_resolved() -> None:
    seen = stuck().passes(12)
    seen.job.dies(2, signal="SIGKILL")
    seen.passes(1)
    assert seen.only.is_open
    seen.job.restarts(0, 1, 2).train(0, 1, 2)
    seen.passes(5)
    assert not seen.only.is_open


def test_findings_come_in_any_order_to_the_same_incidents() -> None:
    two = job(4, hang_after_s=10, groups={"a": (0, 1), "b": (2, 3)})
    two.waits(0, seq=1, group="a").outside(1).waits(2, seq=1, group="b").outside(3)
    forth, back = IncidentBook(), IncidentBook()
    for _ in range(26):
        found: tuple[Finding, ...] = two.passes(0.5).find()
        forth.update(found, two.state)
        back.update(reversed(found), two.state)
    assert {(i.kind, i.ranks) for i in forth.incidents} == {(i.kind, i.ranks) for i in back.incidents}


def test_a_job_that_only_trains_opens_nothing() -> None:
    assert Watched(job(3).train(0, 1, 2)).passes(60).all == []


def test_a_job_that_waits_now_and_then_for_a_checkpoint_opens_nothing_critical() -> None:
    seen = Watched(job(3, hang_after_s=5))
    for seq in range(4):
        seen.job.rest(0, 1, 2).goes_on(0, 1, 2).waits(1, "BARRIER", seq=seq + 1).waits(2, "BARRIER", seq=seq + 1)
        seen.job.outside(0, "save", phase="checkpoint").works(0, "io")
        seen.passes(12)
        seen.job.entered(0, seq + 1).goes_on(0, 1, 2).train(0, 1, 2)
        seen.passes(5)
    assert severities(seen.all) <= {Severity.INFO}
    assert all(i.peak_severity == Severity.INFO and not i.is_open for i in seen.all)


def test_a_rank_that_was_called_late_while_it_was_dying_is_one_incident_by_its_death() -> None:
    """Its peers see the connection close some time before its process is gone."""
    seen = Watched(job(3).waits(0, seq=5).waits(1, seq=5).outside(2).works(2, "cpu")).passes(5)
    assert seen.only.kind == "slow.straggler"
    seen.job.raises(2, "ZeroDivisionError", "division by zero")
    seen.passes(2)
    assert (seen.only.kind, seen.only.severity) == ("exit.error", Severity.CRITICAL)


def test_where_in_a_tensor_ranks_differ_is_news_also_when_it_is_found_out_later() -> None:
    found = Finding("divergence.parameter", Severity.CRITICAL, (1,), "rank 1 differs in w", (), sure=True, key="Net")
    book, state = IncidentBook(), job(3).state
    (opened,) = book.update([found], state)
    assert book.update([found], state) == []
    assert book.update([replace(found, summary="rank 1 differs in row 5 of w")], state) == [opened]
    assert opened.summary == "rank 1 differs in row 5 of w"


def told(kind: str, severity: Severity = Severity.WARNING, step: int = 0) -> Finding:
    (one,) = without_consequences([Finding(kind, severity, (0, 1), kind, (), sure=True, key=kind, step=step)])
    return one


def test_a_consequence_that_shows_first_becomes_the_incident_of_its_cause() -> None:
    book, state = IncidentBook(), job(2).state
    book.update([told("training.loss_spike", step=120)], state)
    state.tick(state.now_s + 10)
    book.update([told("training.codebook_collapse", step=160)], state)
    assert [(i.kind, i.step, i.is_open) for i in book.incidents] == [("training.codebook_collapse", 160, True)]


def test_weights_that_differ_become_the_incident_of_the_settings_that_part_them() -> None:
    book, state = IncidentBook(), job(2).state
    differ = told("divergence.parameter", Severity.CRITICAL, step=4)
    book.update([differ], state)
    state.tick(state.now_s + 10)
    settings = Finding("divergence.optimizer", Severity.CRITICAL, (1,), "lr", (), sure=True, explains=SHOWS_IN)
    book.update(without_consequences([settings]), state)
    assert [(i.kind, i.is_open) for i in book.incidents] == [("divergence.optimizer", True)]


@pytest.mark.parametrize(
    ("first", "then", "after_s"),
    [
        (told("training.loss_plateau"), told("training.codebook_collapse"), 600.0),  # stood long before
        (told("training.loss_divergence", Severity.CRITICAL), told("training.codebook_collapse"), 10.0),  # milder
        (told("training.loss_spike"), told("training.codebook_collapse", Severity.INFO), 10.0),  # explains nothing
        (told("memory.host_leak"), told("training.codebook_collapse"), 10.0),  # another matter
    ],
)
def test_what_does_not_follow_stays_an_incident_of_its_own(first: Finding, then: Finding, after_s: float) -> None:
    book, state = IncidentBook(), job(2).state
    book.update([first], state)
    state.tick(state.now_s + after_s)
    book.update([first, then], state)
    assert {i.kind for i in book.incidents} == {first.kind, then.kind}


def test_a_death_ends_nothing_that_was_said_of_what_is_computed() -> None:
    book, state = IncidentBook(), job(2).state
    parted = told("divergence.parameter", step=20)
    book.update([parted], state)
    state.tick(state.now_s + 1)
    book.update([told("exit.error", Severity.CRITICAL, step=30), parted], state)
    assert [(i.kind, i.is_open) for i in book.incidents] == [("exit.error", True), ("divergence.parameter", True)]


@pytest.mark.parametrize(("kind", "told_too"), [("exit.error", True), ("exit.early", True), ("exit.killed", False)])
def test_a_forecast_of_memory_explains_that_a_rank_is_killed_and_no_exception(kind: str, told_too: bool) -> None:
    book, state = IncidentBook(), job(2).state
    book.update([told("memory.host_leak", Severity.CRITICAL)], state)
    state.tick(state.now_s + 30)
    book.update([told("memory.host_leak", Severity.CRITICAL), told(kind, Severity.CRITICAL)], state)
    assert (kind in [one.kind for one in book.incidents]) is told_too
