"""For how long a rank was held by each one that it sends to and receives from, and by all other operations together."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from diagd.probes.box.layout import POINT_TO_POINT, Op

MAX_PARTNERS = 16  # of each of the two operations; the rest are counted together, so that a look's size stays bounded
ANY = -1  # no one partner: of any source, one beyond the bound, or an operation of a group
_IS_P2P = np.zeros(256, np.bool_)  # by operation
_IS_P2P[[int(op) for op in POINT_TO_POINT]] = True

Partner = tuple[str, int]  # SEND, RECV or empty; global rank


class Partners:
    """Totals, from records of a rank's rings (`tally.RECORD`)."""

    def __init__(self) -> None:
        self._totals: dict[Partner, float] = {}
        self._sends = False

    def add(self, records: NDArray[np.void], held_s: NDArray[np.float64]) -> None:
        """Count operations that have returned, and for how long each held its thread."""
        for partner, seconds in self._by_partner(records, held_s).items():
            self._totals[partner] = self._totals.get(partner, 0.0) + seconds

    def told(self, pending: Iterable[NDArray[np.void]], now_ns: int) -> dict[str, float]:
        """`held_s|RECV|3`, …, with what lasts, as `Facts.extra` carries it; `held_s||-1` is all but send and recv.

        Nothing of a rank that neither sends nor receives.
        """
        found = dict(self._totals)
        for records in pending:
            for partner, seconds in self._by_partner(records, _so_far_s(records, now_ns)).items():
                found[partner] = found.get(partner, 0.0) + seconds
        return {f"held_s|{name}|{rank}": seconds for (name, rank), seconds in found.items()} if self._sends else {}

    def _by_partner(self, records: NDArray[np.void], held_s: NDArray[np.float64]) -> dict[Partner, float]:
        found: dict[Partner, float] = {}
        p2p = _IS_P2P[records["op"]]
        if not p2p.any():
            return {("", ANY): float(held_s.sum())} if len(held_s) else {}
        self._sends = True
        if not p2p.all():
            found["", ANY] = float(held_s[~p2p].sum())
        keys = (records["op"][p2p].astype(np.int64) << 32) | (records["peer"][p2p] + 1)
        for key in np.unique(keys):
            partner = self._bounded(Op(int(key) >> 32).name, (int(key) & 0xFFFFFFFF) - 1)
            found[partner] = found.get(partner, 0.0) + float(held_s[p2p][keys == key].sum())
        return found

    def _bounded(self, name: str, rank: int) -> Partner:
        known = sum(other == name for other, _ in self._totals)
        return (name, rank) if (name, rank) in self._totals or known < MAX_PARTNERS else (name, ANY)


def _so_far_s(records: NDArray[np.void], now_ns: int) -> NDArray[np.float64]:
    """For how long operations that have not returned have held their threads."""
    issued, wait = records["issued"], records["wait"]
    in_call = np.where(issued > 0, issued, now_ns) - records["entered"]
    in_wait = np.where((issued > 0) & (wait > 0), now_ns - wait, 0)
    held: NDArray[np.float64] = np.maximum(in_call + in_wait, 0) / 1e9
    return held
