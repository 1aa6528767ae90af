"""Joins what a rank tells of itself with what was read in the files that it writes: one numbering of names for both."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from diagd.daemon.agent.metric_tail import Sample
from diagd.daemon.state.scalars import SignalNews

PREFIX = "logged/"
MOST_NAMES = 1024  # from files, of a rank
EXACT = "exact"  # takes the place of the fact that a metric was printed rounded


class RankMix:
    """One rank's. What a file holds is not taken from the rank's own lines as well, which show it rounded."""

    def __init__(self, rank: int, pid: int) -> None:
        self._rank, self.pid = rank, pid
        self._strings: list[str] = []
        self._numbers: dict[str, int] = {}
        self._own: list[int] = []  # the rank's own numbers -> these
        self._logged: set[int] = set()
        self._told = self._left_out = 0
        self._floors: dict[int, int] = {}  # of names from files: the last step that the rank itself had told
        self._last: dict[int, int] = {}  # likewise, of the rank's own

    def join(self, own: SignalNews | None, samples: Sequence[Sample], anew: bool) -> SignalNews | None:
        """All that is new, None where nothing is."""
        if anew:
            self._told = 0
        if own is not None and not samples and not self._floors:
            return self._as_it_is(own)
        names: list[int] = []
        steps: list[int] = []
        values: list[float] = []
        facts: list[tuple[int, int, int]] = []
        # The file's first: what it holds, the rank's lines of this look are not taken for.
        for sample in samples:
            number = self._of_file(sample, facts)
            if number is not None and sample.step is not None and sample.step > self._floors[number]:
                names.append(number)
                steps.append(sample.step)
                values.append(sample.value)
        if own is not None:
            self._take_own(own, names, steps, values, facts)
        if not names and not facts and self._told == len(self._strings):
            return None
        first, self._told = self._told, len(self._strings)
        return SignalNews(
            self._rank, self.pid, first, tuple(self._strings[first:]), names, steps, values, tuple(facts),
            self._left_out,
        )  # fmt: skip

    def _as_it_is(self, own: SignalNews) -> SignalNews:
        """Of a rank of which no file is known: the numbers are the rank's own."""
        self._take_own(own, [], [], [], [])
        first, self._told = self._told, len(self._strings)
        return replace(own, first_string=first, strings=tuple(self._strings[first:]))

    def _of_file(self, sample: Sample, facts: list[tuple[int, int, int]]) -> int | None:
        name = PREFIX + sample.name
        if name not in self._numbers and len(self._floors) >= MOST_NAMES:
            return None
        number = self._number(name)
        if number not in self._floors:
            self._floors[number] = self._last.get(number, -1)
            if number in self._last:
                facts.append((number, max(sample.step or 0, 0), self._number(EXACT)))
        return number

    def _take_own(
        self, own: SignalNews, names: list[int], steps: list[int], values: list[float],
        facts: list[tuple[int, int, int]],
    ) -> None:  # fmt: skip
        self._left_out = own.left_out
        self._own[own.first_string :] = [self._number(text) for text in own.strings]
        mine = ((self._own[name], step, self._own[text]) for name, step, text in own.facts)
        facts += [fact for fact in mine if fact[0] not in self._floors]
        if not len(own.names):
            return
        # As arrays: a rank with a norm for each parameter tells thousands in a look.
        ours = np.asarray(self._own, np.int64)[np.asarray(own.names, np.int64)]
        kept = ~np.isin(ours, list(self._floors)) if self._floors else np.ones(len(ours), np.bool_)
        ours, mine_steps = ours[kept], np.asarray(own.steps, np.int64)[kept]
        names += ours.tolist()
        steps += mine_steps.tolist()
        values += np.asarray(own.values, np.float64)[kept].tolist()
        for number in self._logged.intersection(ours.tolist()):
            self._last[number] = max(int(mine_steps[ours == number].max()), self._last.get(number, -1))

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._strings)
            self._strings.append(text)
            if text.startswith(PREFIX):
                self._logged.add(number)
        return number


class SignalMix:
    """All ranks of a node."""

    def __init__(self) -> None:
        self._ranks: dict[int, RankMix] = {}

    def join(
        self, pids: Mapping[int, int], own: Iterable[SignalNews], files: Mapping[int, list[Sample]], anew: bool
    ) -> list[SignalNews]:
        """All that is new of the ranks, whose processes `pids` names."""
        by_rank = {news.rank: news for news in own}
        found = []
        for rank, pid in pids.items():
            mix = self._ranks.get(rank)
            if mix is None or mix.pid != pid:
                mix = self._ranks[rank] = RankMix(rank, pid)
            news = by_rank.get(rank)
            if news is not None and news.pid != pid:
                news = None
            found.append(mix.join(news, files.get(rank, ()), anew))
        return [news for news in found if news is not None]
