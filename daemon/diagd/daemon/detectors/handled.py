"""Exceptions that ranks stand in: who has left its way by one is the odd one, whatever a vote says."""

from collections.abc import Iterable
from typing import NamedTuple

from diagd.daemon.detectors import places
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.model import Frame


class Handled(NamedTuple):
    """One rank's."""

    text: str  # "KeyError: 1777"
    place: Frame | None  # where the script's own code raised it


def handled(scene: Scene, ranks: Iterable[int]) -> dict[int, Handled]:
    """By rank; only those that stand in one now."""
    found = {}
    for rank in ranks:
        fact = scene.state.signals.fact(rank, "exception/handled")
        text, _, place = fact[1].partition("\t") if fact is not None else ("", "", "")
        if text:
            found[rank] = Handled(text, places.told(place))
    return found
