"""The streams of a run as one, stretch by stretch in the order of steps; each metric from the most exact of them."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace

from diagd.daemon.artifacts.columns import Key
from diagd.daemon.artifacts.reading import Reading
from diagd.daemon.artifacts.sources import Source
from diagd.daemon.artifacts.stepping import Stepping, Stretch

Told = Callable[[int], None]  # of so many bytes that were read


class Notes:
    """What was skipped, by file."""

    def __init__(self) -> None:
        self.skipped: dict[str, dict[str, int]] = {}
        self.broken: dict[str, str] = {}  # file -> why it could not be read to its end
        self.said: dict[str, list[str]] = {}

    def lines(self) -> list[str]:
        """For a person."""
        found = [f"{name} is {why}" for name, why in self.broken.items()]
        for name, counts in self.skipped.items():
            said = ", ".join(f"{count} {why}" for why, count in sorted(counts.items(), key=lambda one: -one[1]))
            found.append(f"lines of {name} that were passed over: {said}")
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
    for source, piece in reading.pieces(stream):
        told(piece.read)
        if source is not read:
            stepping.begin_file()
            read = source
        name = source.path.name
        counts = notes.skipped.setdefault(name, {}) if piece.skipped else {}
        for why, count in piece.skipped.items():
            counts[why] = counts.get(why, 0) + count
        if piece.stopped:
            notes.broken[name] = piece.stopped
        for found in stepping.stretches(piece):
            found.share = max(piece.read / size, 1e-6)
            yield found
        if stepping.notes:
            notes.said[name] = stepping.notes
