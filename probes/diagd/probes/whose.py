"""Whose optimizer state a rank goes on with: short marks of it, for the aggregator to compare between ranks.

checkpoint/kept     fact: as a file was written, "NAME=WEIGHT:MOMENT" for some parameters, with commas between them;
                    WEIGHT and MOMENT are hashes of some of their values
checkpoint/given    fact: the same before the first step after an optimizer was given state
"""

import zlib

from diagd.probes import marks
from diagd.probes.few_values import Mark
from diagd.probes.signals import SIGNALS

ENTRIES = 12
NAME = 48  # of a longer one the end is told


class _Whose:
    """This process's."""

    def __init__(self) -> None:
        self.awaited = False  # an optimizer was given state, and has not stepped yet

    def tell(self, given: marks.Kept, step: int) -> None:
        """Before a step: what an optimizer keeps now; nothing of one that only stands for others, as ZeRO's does."""
        if given.moments or not given.is_there:
            self.awaited = False
            given.when_there(lambda: SIGNALS.fact("checkpoint/given", text(given), step))


WHOSE = _Whose()


def wrote(kept: marks.Kept, step: int) -> None:
    """The run has written a file, while it kept this."""
    kept.when_there(lambda: SIGNALS.fact("checkpoint/kept", text(kept), step) if kept.moments else None)


def text(kept: marks.Kept) -> str:
    """The first of those that are known by both marks, and that are not all the same number."""
    both = [(name, kept.weights[name], mark) for name, mark in kept.moments.items()
            if name in kept.weights and len(set(mark[1:])) > 1]  # fmt: skip
    return ",".join(f"{name[-NAME:].replace(',', ';')}={_hash(one)}:{_hash(two)}" for name, one, two in both[:ENTRIES])


def _hash(mark: Mark) -> str:
    return f"{zlib.crc32(repr(mark).encode()):08x}"
