"""The streams of a run as one, stretch by stretch in the order of steps; each metric from the most exact of them."""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from diagd.daemon.artifacts.columns import Key
from diagd.daemon.artifacts.reading import Reading
from diagd.daemon.artifacts.sources import Source
from diagd.daemon.artifacts.stepping import Stepping, Stretch

NULLS = 2  # records in a row
Told = Callable[[int], None]  # of so many bytes that were read


class Notes:
    """What was skipped, by file.

    Args:
        has_to_be: Whether a metric should have a value in each record.
    """

    def __init__(self, has_to_be: Callable[[str], bool] = lambda metric: False) -> None:
        self._has_to_be = has_to_be
        self.skipped: dict[str, dict[str, int]] = {}
        self.broken: dict[str, str] = {}  # file -> why it could not be read to its end
        self.nulls: dict[str, dict[str, int]] = {}  # file -> metric -> records
        self.said: dict[str, list[str]] = {}

    def ends_in_nulls(self, name: str, nulls: Mapping[Key, int]) -> None:
        """In how many records at a file's end metrics have no value."""
        counts = {metric: count for (_, metric), count in nulls.items() if self._has_to_be(metric)}
        self.nulls[name] = {metric: count for metric, count in counts.items() if count >= NULLS}

    def lines(self) -> list[str]:
        """For a person."""
        found = [f"{name} is {why}" for name, why in self.broken.items()]
        for name, counts in self.skipped.items():
            said = ", ".join(f"{count} {why}" for why, count in sorted(counts.items(), key=lambda one: -one[1]))
            found.append(f"lines of {name} that were passed over: {said}")
        for name, ends in self.nulls.items():
            found += [
                f"the last {count} records of {name} have no {metric} (null), as where NaN cannot be written: what it"
                " was there is not judged"
                for metric, count in ends.items()
            ]
        return [*found, *(f"{name} {text}" for name, texts in self.said.items() for text in texts)]


def merged(streams: tuple[tuple[Source, ...], ...], reading: Reading, notes: Notes, told: Told) -> Iterator[Stretch]:
    """All stretches, of the first run before those of the second, and within a run by their last step."""
    heads = [_stretches(stream, reading, notes, told) for stream in streams]
    owners: dict[tuple[int, Key], int] = {}
    waiting: list[tuple[int, int, int, Stretch]] = []

    def draw(number: int) -> None:
        found = next(heads[number], None)
        if found is not None:
            for key in found.samples:
                known = owners.setdefault((found.run, key), number)
                owners[found.run, key] = min(known, number)
            heapq.heappush(waiting, (found.run, found.last_step, number, found))

    for number in range(len(heads)):
        draw(number)
    while waiting:
        run, _, number, found = heapq.heappop(waiting)
        draw(number)
        mine = {key: samples for key, samples in found.samples.items() if owners[run, key] == number}
        if mine:
            yield replace(found, samples=mine)


def _stretches(stream: tuple[Source, ...], reading: Reading, notes: Notes, told: Told) -> Iterator[Stretch]:
    stepping = Stepping()
    size = max(sum(source.size for source in stream), 1)
    read: Source | None = None
    nulls: dict[Key, int] = {}
    for source, piece in reading.pieces(stream):
        told(piece.read)
        if source is not read:
            stepping.begin_file()
            notes.nulls.pop(read.path.name if read is not None else "", None)  # it goes on
            read = source
        name = source.path.name
        counts = notes.skipped.setdefault(name, {}) if piece.skipped else {}
        for why, count in piece.skipped.items():
            counts[why] = counts.get(why, 0) + count
        if piece.stopped:
            notes.broken[name] = piece.stopped
        nulls = {key: count for key, count in nulls.items() if key not in piece.columns}
        for key, count in piece.nulls.items():
            nulls[key] = nulls.get(key, 0) + count
        notes.ends_in_nulls(name, nulls)
        for found in stepping.stretches(piece):
            found.share = max(piece.read / size, 1e-6)
            yield found
        if stepping.notes:
            notes.said[name] = stepping.notes
