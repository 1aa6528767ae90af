"""What a rank tells and what its files hold, as one."""

from collections.abc import Iterable, Sequence

from diagd.daemon.agent.metric_tail import Sample
from diagd.daemon.agent.signal_mix import SignalMix
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.signals import SignalBook

STRINGS = ("grad_norm", "logged/loss", "decimals 4", "logged/lr")


def own(
    strings: Sequence[str] = STRINGS, samples: Iterable[tuple[int, int, float]] = (), first: int = 0, pid: int = 9,
    facts: tuple[tuple[int, int, int], ...] = (),
) -> SignalNews:  # fmt: skip
    names, steps, values = zip(*samples, strict=True) if samples else ((), (), ())
    return SignalNews(0, pid, first, tuple(strings), names, steps, values, facts, 3)


class Job:
    """An agent's mix and the book that it is told to."""

    def __init__(self) -> None:
        self.mix, self.book = SignalMix(), SignalBook()

    def look(self, news: SignalNews | None = None, *samples: Sample, pid: int = 9, anew: bool = False) -> None:
        found = self.mix.join({0: pid}, [news] if news else [], {0: list(samples)}, anew)
        self.book.apply(found)

    def told(self, name: str) -> list[tuple[int, float]]:
        series = self.book.series(0, name)
        return [] if series is None else list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_without_files_all_passes_as_the_rank_tells_it() -> None:
    job = Job()
    job.look(own(samples=[(0, 1, 2.0), (1, 1, 0.5)], facts=((1, 1, 2),)))
    job.look(own((), [(0, 2, 3.0)], first=4))
    assert (job.told("grad_norm"), job.told("logged/loss")) == ([(1, 2.0), (2, 3.0)], [(1, 0.5)])
    assert job.book.fact(0, "logged/loss") == (1, "decimals 4")
    assert job.book.left_out == {0: 3}


def test_what_a_file_holds_is_no_longer_taken_from_what_is_printed() -> None:
    job = Job()
    job.look(own(samples=[(1, 1, 0.5), (3, 1, 0.1)], facts=((1, 1, 2),)))
    job.look(own((), [(1, 2, 0.4), (3, 2, 0.1), (0, 2, 7.0)], first=4, facts=((1, 2, 2),)),
             Sample("loss", 1, 0.5001), Sample("loss", 2, 0.4001), Sample("kl", 2, 0.3))  # fmt: skip
    job.look(own((), [(1, 3, 0.3)], first=4), Sample("loss", 3, 0.3001))
    assert job.told("logged/loss") == [(1, 0.5), (2, 0.4001), (3, 0.3001)]
    assert job.book.fact(0, "logged/loss") == (1, "exact")
    assert (job.told("logged/lr"), job.told("logged/kl")) == ([(1, 0.1), (2, 0.1)], [(2, 0.3)])
    assert job.told("grad_norm") == [(2, 7.0)]


def test_names_of_the_rank_that_come_after_a_files_are_told_apart() -> None:
    job = Job()
    job.look(None, Sample("loss", 1, 0.5))
    job.look(own(samples=[(0, 1, 2.0), (1, 1, 0.6)]), Sample("kl", 2, 0.2))
    job.look(own(("late",), [(4, 3, 5.0)], first=4), Sample("loss", 3, 0.25))
    assert job.told("late") == [(3, 5.0)]
    assert job.told("logged/loss") == [(1, 0.5), (3, 0.25)]
    assert job.told("logged/kl") == [(2, 0.2)]


def test_who_comes_new_is_told_all_names() -> None:
    job = Job()
    job.look(own(samples=[(0, 1, 2.0)]), Sample("kl", 1, 0.5))
    job.book = SignalBook()
    job.look(own(samples=[(0, 2, 3.0)]), Sample("kl", 2, 0.25), anew=True)
    assert (job.told("grad_norm"), job.told("logged/kl")) == ([(2, 3.0)], [(2, 0.25)])


def test_another_process_under_the_number_begins_anew() -> None:
    job = Job()
    job.look(own(samples=[(0, 1, 2.0)]), Sample("kl", 7, 0.5))
    job.look(own(("loss",), [(0, 1, 4.0)], pid=10), Sample("kl", 1, 0.1), pid=10)
    assert (job.told("grad_norm"), job.told("loss"), job.told("logged/kl")) == ([], [(1, 4.0)], [(1, 0.1)])


def test_nothing_new_is_nothing() -> None:
    mix = SignalMix()
    assert mix.join({0: 9}, [], {}, False) == []
