"""Who waits for a culprit, and in what: some in an operation that needs it, in this group or that, others for those."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import Scene

_SHOWN = 3  # operations


@dataclass(frozen=True, slots=True)
class Victims:
    """Those that wait for a culprit itself, by the operation in which they do, most first; and those behind them."""

    direct: tuple[tuple[str, tuple[int, ...]], ...]
    behind: tuple[int, ...]
    whom: tuple[int, ...] = ()  # those of the former for whom these wait, where that is not all

    @property
    def alike(self) -> bool:
        """Whether all wait in one operation."""
        return len(self.direct) == 1 and not self.behind

    def clauses(self, lasting: str = "") -> str:
        """ "rank 1 waits in ALLREDUCE #5 of group 4 and rank 2 in BARRIER #2 of group 3 for 8 s; rank 0 for rank 1".

        Args:
            lasting: How long those in an operation have waited, as " for 8 s".
        """
        shown, said = self._shown(), ""
        for what, ranks in shown:
            who = words.ranks_text(ranks) if said else words.wait_text(ranks)
            said += f"{' and ' if said else ''}{who} in {what}"
        said += lasting
        if self.behind:
            said += f"; {words.wait_text(self.behind)} for {self._them('it', 'them')}"
        return said

    def listed(self) -> str:
        """ "rank 1 in ALLREDUCE #5 of group 4; rank 2 in BARRIER #2 of group 3; rank 0 for rank 1"."""
        parts = [f"{words.ranks_text(ranks)} in {what}" for what, ranks in self._shown()]
        behind = [f"{words.ranks_text(self.behind)} for {self._them('that', 'these')}"] if self.behind else []
        return "; ".join([*parts, *behind])

    def _them(self, one: str, many: str) -> str:
        if self.whom:
            return words.ranks_text(self.whom)
        return words.verb((rank for _, ranks in self.direct for rank in ranks), one, many)

    def _shown(self) -> list[tuple[str, tuple[int, ...]]]:
        if len(self.direct) <= _SHOWN:
            return list(self.direct)
        rest = sorted(rank for _, ranks in self.direct[_SHOWN - 1 :] for rank in ranks)
        return [*self.direct[: _SHOWN - 1], ("others", tuple(rest))]


def victims_of(scene: Scene, culprits: Iterable[int], waiting: Iterable[int]) -> Victims:
    """How these ranks wait for the culprits."""
    aims = tuple(culprits)
    direct: dict[str, list[int]] = {}
    behind = []
    for rank in waiting:
        wait = directly(scene, aims, rank)
        if wait is None and not scene.graph.edges.get(rank):  # in an operation that a culprit is in as well
            wait = scene.graph.wait(rank)
        if wait is None:
            behind.append(rank)
        else:
            direct.setdefault(words.op_text(wait.op), []).append(rank)
    ranked = sorted(direct.items(), key=lambda item: (-len(item[1]), item[1]))
    there = {rank for ranks in direct.values() for rank in ranks}
    whom = there & {other for rank in behind for other in scene.graph.edges.get(rank, ())}
    return Victims(
        tuple((what, tuple(ranks)) for what, ranks in ranked),
        tuple(behind),
        tuple(sorted(whom)) if whom < there else (),
    )


def directly(scene: Scene, culprits: Iterable[int], rank: int) -> Wait | None:
    """The rank's wait for one of these; None where it waits for none of them itself."""
    found = (scene.graph.for_whom.get((rank, culprit)) for culprit in culprits)
    return next((wait for wait in found if wait is not None), None)


def with_victims(scene: Scene, finding: Finding) -> Finding:
    """A finding of ranks that stand now, with who waits in what where that is not one operation for all."""
    stands = finding.kind.startswith(("hang.", "exit.")) or finding.key.startswith("root")
    if not stands or not finding.waiting_ranks:
        return finding
    victims = victims_of(scene, finding.ranks, finding.waiting_ranks)
    alike = victims.alike and victims.direct[0][0].startswith(finding.op_name or words.UNNAMED_TEXT)
    return finding if alike or not victims.direct else replace(finding, waits=victims.listed())
