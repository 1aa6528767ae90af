"""Ranks that held something else for a while: over once that was seen to be equal again, and not before."""

from dataclasses import replace

from tests.detectors.states import Job
from tests.detectors.tensors import Content, ledgers, only, same, training

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.registry import detect
from diagd.daemon.incidents.book import OFTEN, IncidentBook
from diagd.daemon.incidents.incident import Incident
from diagd.daemon.state.tensors import LedgerNews, TensorInfo

DDP = TensorInfo("Net.fc.weight", shape=(4, 4), placement="ddp", peers=(0, 1, 2))
UNTIL = 65  # the last step that `training` tells of


class Watched:
    """A job of three ranks whose tensors are told of, and its incidents."""

    def __init__(self, *holds: Content) -> None:
        names = (f"Net.{number}.weight" for number in range(len(holds)))
        self.tensors = {replace(DDP, name=name): hold for name, hold in zip(names, holds, strict=True)}
        self.job: Job = training(self.tensors)
        self.book = IncidentBook()
        self.look()

    def look(self) -> list[Incident]:
        """One look, late enough that what training computes is judged anew."""
        self.job.passes(10.0)
        self.book.update(detect(self.job.state), self.job.state)
        return sorted(self.book.incidents, key=lambda one: one.id)

    def tells(self, *steps: int, left_out: tuple[int, ...] = ()) -> list[Incident]:
        """What the ranks hold after these steps too, of all tensors but some."""
        tensors = {info: hold for n, (info, hold) in enumerate(self.tensors.items()) if n not in left_out}
        told = ledgers(tensors, range(3), steps)
        self.job.state.tensors.apply(told, 3)
        return self.look()

    @property
    def only(self) -> Incident:
        (one,) = self.look()
        return one


def test_weights_that_are_equal_again_on_all_ranks_resolve_their_incident_and_say_since_when() -> None:
    seen = Watched(only(1, since=30, until=80))
    assert seen.only.is_open
    (one,) = seen.tells(97, 129)
    assert (one.is_open, one.severity, one.peak_severity) == (False, Severity.WARNING, Severity.CRITICAL)
    assert one.summary == (
        "rank 1 holds other values than ranks 0,2 in Net.0.weight, since a step from 3 to 33; equal again since a step"
        " from 66 to 97"
    )


def test_of_what_no_wrapper_keeps_equal_one_comparison_may_be_one_average_of_ranks_that_train_apart() -> None:
    seen = Watched(only(1, since=30, until=80))
    for entry in seen.job.state.tensors.entries:
        entry.peers = ()
    assert [one.is_open for one in seen.tells(97)] == [True]
    assert [one.is_open for one in seen.tells(129)] == [False]


def test_what_differs_until_the_end_stays_open() -> None:
    seen = Watched(only(1, since=30))
    assert [one.is_open for one in seen.tells(97, 129)] == [True]


def test_while_one_of_several_tensors_differs_still_nothing_is_over() -> None:
    seen = Watched(only(1, since=30, until=80), only(1, since=30))
    assert [one.is_open for one in seen.tells(97, 129)] == [True]


def test_a_tensor_that_was_not_looked_at_again_is_not_known_to_be_equal() -> None:
    seen = Watched(only(1, since=30, until=80), only(1, since=30, until=80))
    assert [one.is_open for one in seen.tells(97, 129, left_out=(1,))] == [True]


def test_it_is_known_also_once_the_job_has_ended_or_failed() -> None:
    for code in (0, 1):
        seen = Watched(only(1, since=30, until=80))
        seen.job.passes(1.0).state.tensors.apply(ledgers(seen.tensors, range(3), (97, 129)), 3)
        seen.job.state.ended_s, seen.job.state.exit_code = seen.job.now_s, code
        seen.book.update(detect(seen.job.state), seen.job.state)
        assert [one.is_open for one in seen.book.incidents if one.kind.startswith("divergence")] == [False]


def again(*since: int) -> Content:
    """Apart from 33 on, and after each of these steps for two looks more."""
    apart = {step for one in (33, *since) for step in (one, one + 32)}
    return lambda rank, step: only(1, since=0)(rank, step) if step in apart else same(rank, step)


def test_a_difference_after_that_is_another_incident() -> None:
    seen = Watched(again(161))
    seen.tells(97, 129)
    first, second = seen.tells(161, 193)
    assert (first.is_open, second.is_open) == (False, True)
    assert "since a step from 130 to 161" in second.summary


def test_what_differs_and_is_made_equal_again_and_again_is_not_told_each_time() -> None:
    begins = [33 + 128 * number for number in range(1, OFTEN + 3)]
    seen = Watched(again(*begins))
    for begin in begins:
        seen.tells(begin - 64, begin - 32)
        seen.tells(begin, begin + 32)
    assert len(seen.look()) == OFTEN
    assert [one.is_open for one in seen.look()] == [False] * (OFTEN - 1) + [True]


def test_another_process_under_the_ranks_number_says_nothing_of_the_one_before() -> None:
    seen = Watched(only(1, since=30, until=80))
    told = [LedgerNews(0, 999, 0, tuple(seen.tensors))]
    seen.job.state.tensors.apply(told, 3)
    assert [one.healed for one in seen.look()] == [False]
