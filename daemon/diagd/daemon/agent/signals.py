"""Reads the ranks' signals: names once, and the scalars and facts that are new since the last look."""

import logging
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.agent.ledgers import is_new
from diagd.daemon.state.scalars import SignalNews
from diagd.probes.box import signals as layout
from diagd.probes.box.signals import Fact, Number

log = logging.getLogger(__name__)

# Of a rank in one look. What is above it has too many names or steps to be looked at one by one: of each name, steps
# that are multiples of a power of two are told, so that all ranks tell the same ones.
MAX_TOLD = 4096
FEW = 64  # samples of one name in a look that are always told

_SAMPLE = np.dtype([("serial", "<i8"), ("name", "<i8"), ("step", "<i8"), ("value", "<f8")])
Samples = NDArray[np.void]


class NoSignals(ValueError):
    """The file holds no signals that this version can read."""


class SignalReader:
    """One rank's signals, mapped read-only; remembers how far they were read.

    Raises:
        OSError: The file cannot be opened.
        NoSignals: It is cut off, foreign, or of another version.
    """

    def __init__(self, path: Path, rank: int, pid: int) -> None:
        self.path, self.rank, self.pid = path, rank, pid
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < layout.SIZE:
                raise NoSignals(f"{path} is too short")
            self._map = mmap.mmap(file.fileno(), layout.SIZE, prot=mmap.PROT_READ)
        magic, version, *_ = layout.HEADER.unpack_from(self._map, 0)
        if (magic, version) != (layout.MAGIC, layout.VERSION):
            raise NoSignals(f"{path} holds no signals of version {layout.VERSION}")
        self._numbers = np.frombuffer(self._map, "<i8", layout.STRINGS_AT // 8)
        self._samples = np.frombuffer(self._map, _SAMPLE, layout.MAX_SAMPLES, layout.SAMPLES_AT)
        self._strings: list[str] = []
        self._told = self._offset = self._seen = self._fact = 0

    def news(self) -> SignalNews | None:
        """What is new since the last call; None where nothing is."""
        if self.path.stat().st_size < layout.SIZE:  # reading past its end would be the agent's death
            raise NoSignals(f"{self.path} was cut off")
        newest, newest_fact = (
            self._number(Number.SAMPLES),
            self._number(Number.FACT_SERIAL),
        )  # first: their names are there
        for text, offset in layout.read_strings(self._map, self._offset, self._number(Number.STRINGS_USED)):
            self._strings.append(text)
            self._offset = offset
        if newest == self._seen and newest_fact == self._fact and self._told == len(self._strings):
            return None
        facts, samples = self._new_facts(newest_fact), self._new_samples(newest)
        first, self._told = self._told, len(self._strings)
        return SignalNews(
            self.rank, self.pid, first, tuple(self._strings[first:]),
            samples["name"].tolist(), samples["step"].tolist(), samples["value"].tolist(), facts,
            self._number(Number.LEFT_OUT),
        )  # fmt: skip

    def forget_sent(self) -> None:
        """Tell all names and facts anew: who was told is gone."""
        self._told = self._fact = 0

    def _number(self, which: Number) -> int:
        return int(self._numbers[layout.NUMBERS_AT // 8 + which])

    def _new_facts(self, newest: int) -> tuple[tuple[int, int, int], ...]:
        """Name, step and text of those that are newer than the last look."""
        first = layout.FACTS_AT // 8
        rows = self._numbers[first : first + min(self._number(Number.FACTS), layout.MAX_FACTS) * layout.FACT_FIELDS]
        found = [Fact(*row) for row in rows.reshape(-1, layout.FACT_FIELDS).tolist()]
        new = [fact for fact in found if self._fact < fact.serial <= newest and self._known(fact.name, fact.text)]
        self._fact = newest
        return tuple((fact.name, fact.step, fact.text) for fact in sorted(new))

    def _known(self, *strings: int) -> bool:
        return all(0 <= number < len(self._strings) for number in strings)

    def _new_samples(self, newest: int) -> Samples:
        # The writer may be a few further by now: what it overwrites shows another serial.
        serials = np.arange(max(self._seen, newest - layout.MAX_SAMPLES) + 1, newest + 1)
        self._seen = newest
        found = self._samples[(serials - 1) % layout.MAX_SAMPLES].copy()
        sound = (found["serial"] == serials) & (found["name"] >= 0) & (found["name"] < len(self._strings))
        return thinned(found[sound])


def thinned(samples: Samples) -> Samples:
    """All of what is little; of the rest what lies on round steps, and whatever is not finite."""
    if len(samples) <= MAX_TOLD:
        return samples
    _, which, counts = np.unique(samples["name"], return_inverse=True, return_counts=True)
    every = 1 << int(np.ceil(np.log2(len(samples) / MAX_TOLD)))
    kept = (counts[which] <= FEW) | (samples["step"] % every == 0) | ~np.isfinite(samples["value"])
    told: Samples = samples[kept]
    return told


def facts_beside(box: Path, rank: int, pid: int) -> dict[str, tuple[int, str]]:
    """By name, the step and the text of each fact in the signals beside a box; none where they cannot be read."""
    try:
        news = SignalReader(box.with_suffix(layout.SUFFIX), rank, pid).news()
    except (OSError, NoSignals):
        return {}
    said = news.strings if news is not None else ()
    return {said[name]: (step, said[text]) for name, step, text in (news.facts if news is not None else ())}


class SignalShelf:
    """The signals of a node's ranks, as they come and go."""

    def __init__(self) -> None:
        self._readers: dict[Path, SignalReader] = {}
        self._bad: set[Path] = set()

    def news(self, boxes: Iterable[tuple[int, int, Path]], anew: bool = False) -> list[SignalNews]:
        """What is new in the signals beside these boxes (rank, process, path)."""
        present = {path.with_suffix(layout.SUFFIX): (rank, pid) for rank, pid, path in boxes}
        for path in self._readers.keys() - present.keys():
            del self._readers[path]
        found = [self._of(path, rank, pid, anew) for path, (rank, pid) in present.items() if path not in self._bad]
        return [news for news in found if news is not None]

    def _of(self, path: Path, rank: int, pid: int, anew: bool) -> SignalNews | None:
        try:
            reader = self._readers.get(path)
            if reader is None or reader.rank != rank:
                reader = self._readers[path] = SignalReader(path, rank, pid)
            elif anew:
                reader.forget_sent()
            return reader.news()
        except FileNotFoundError:
            return None  # there are none yet, or no longer
        except (OSError, NoSignals) as exc:
            if is_new(path):
                return None  # they are being made
            log.warning("a rank's signals are not read: %s", exc)
            self._bad.add(path)
            return None
