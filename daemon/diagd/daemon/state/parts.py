"""Where in a tensor ranks differ: digests of runs of its rows, side by side."""

from collections.abc import Iterable
from dataclasses import dataclass, field

Span = tuple[int, int]  # rows of the first dimension, from the first to before the last
KEPT_STEPS = 2  # of a tensor; parts of an older step are not waited for


@dataclass(frozen=True, slots=True)
class Where:
    """The rows in which a tensor was last seen to differ; in order, none touching the next."""

    step: int  # after which
    spans: tuple[Span, ...]
    unit: int  # rows of the largest part in which they differ: it is not known more exactly than that
    parts: int  # that were compared in the last pass
    unequal: int  # of them
    classes: list[list[int]]  # ranks by equal content of all that was compared, the largest class first

    @property
    def rows(self) -> int:
        """How many they are."""
        return sum(stop - first for first, stop in self.spans)


@dataclass(slots=True)
class _Pass:
    """Parts of one tensor after one step."""

    told: dict[Span, dict[int, int]] = field(default_factory=dict)  # digests by rank
    compared: set[Span] = field(default_factory=set)


class PartBook:
    """Parts of tensors, by the tensor's index; those of a step are compared when all ranks have told theirs."""

    def __init__(self) -> None:
        self._passes: dict[int, dict[int, _Pass]] = {}

    def take(self, index: int, step: int, span: Span, rank: int, digest: int) -> None:
        """One rank's digest of some rows."""
        passes = self._passes.setdefault(index, {})
        if step not in passes and len(passes) >= KEPT_STEPS:
            del passes[min(passes)]
        passes.setdefault(step, _Pass()).told.setdefault(span, {})[rank] = digest

    def forget(self, index: int) -> None:
        """Nothing that was told of this tensor counts any more."""
        self._passes.pop(index, None)

    def compare(self, index: int, step: int, members: Iterable[int], before: Where | None) -> Where | None:
        """What is known of the tensor by these; `before` where all parts are equal, or some are still to come.

        What was known before and not compared now stands.
        """
        found, wanted = self._passes.get(index, {}).get(step), set(members)
        if found is None or not wanted:
            return before
        complete = {span for span, told in found.told.items() if wanted <= told.keys()}
        if len(complete) < len(found.told) or complete == found.compared:
            return before
        found.compared = complete
        told = {span: {rank: found.told[span][rank] for rank in wanted} for span in sorted(complete)}
        unequal = [span for span, digests in told.items() if len(set(digests.values())) > 1]
        if not unequal:
            return before
        kept = [span for span in before.spans if not _inside(span, merged(complete))] if before is not None else []
        unit = max(stop - first for first, stop in unequal)
        if before is not None and kept:
            unit = max(unit, before.unit)
        return Where(step, merged([*unequal, *kept]), unit, len(complete), len(unequal), _classes(wanted, told))


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same rows, with those that touch or overlap as one."""
    found: list[Span] = []
    for first, stop in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((first, stop))
    return tuple(found)


def _inside(span: Span, spans: Iterable[Span]) -> bool:
    return any(first <= span[0] and span[1] <= stop for first, stop in spans)


def _classes(ranks: Iterable[int], told: dict[Span, dict[int, int]]) -> list[list[int]]:
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in sorted(ranks):
        found.setdefault(tuple(digests[rank] for digests in told.values()), []).append(rank)
    return sorted(found.values(), key=lambda alike: (-len(alike), alike))
