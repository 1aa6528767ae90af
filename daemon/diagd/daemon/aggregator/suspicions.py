"""Which ranks are looked at deeply, and when each is due again: often at first, then more seldom."""

from collections.abc import Collection
from dataclasses import dataclass

EARLY_S = 10.0  # of a suspicion
EARLY_EVERY_S = 1.0
LATE_EVERY_S = 5.0
FORGOTTEN_AFTER_S = 3.0  # a rank that was not worth a look for so long begins anew
ANSWER_WITHIN_S = 8.0  # a deep look takes up to 3 s; after this the command is taken as lost


@dataclass(slots=True)
class Suspicion:
    """A rank that is being looked at deeply."""

    since_s: float
    wanted_s: float
    asked_s: float = 0.0
    command: int = 0  # that is under way; 0 none


class Suspicions:
    """The ranks that are worth a look, by when they were asked last."""

    def __init__(self) -> None:
        self._of: dict[int, Suspicion] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def due(self, wanted: Collection[int], now_s: float) -> set[int]:
        """Those of the wanted ranks whose look is due; who was not wanted for long is forgotten."""
        found = {rank for rank in wanted if self._is_due(rank, now_s)}
        for rank in [r for r, s in self._of.items() if now_s - s.wanted_s > FORGOTTEN_AFTER_S]:
            del self._of[rank]
        return found

    def _is_due(self, rank: int, now_s: float) -> bool:
        suspicion = self._of.setdefault(rank, Suspicion(now_s, now_s))
        suspicion.wanted_s = now_s
        waited_s = now_s - suspicion.asked_s
        if suspicion.command:
            return waited_s >= ANSWER_WITHIN_S
        return waited_s >= (EARLY_EVERY_S if now_s - suspicion.since_s < EARLY_S else LATE_EVERY_S)

    def asked(self, ranks: Collection[int], command: int, now_s: float) -> None:
        """These are being looked at, by this command."""
        for rank in ranks:
            self._of[rank].command, self._of[rank].asked_s = command, now_s

    def answered(self, command: int) -> None:
        """The command was done, or could not be."""
        for suspicion in self._of.values():
            if suspicion.command == command:
                suspicion.command = 0

    def lost(self) -> None:
        """An agent is gone, and with it what it was asked."""
        for suspicion in self._of.values():
            suspicion.command = 0
