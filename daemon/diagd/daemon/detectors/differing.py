"""A tensor that is not the same on all ranks: how it came to differ, since when, and between whom."""

from dataclasses import dataclass
from enum import StrEnum

from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.models import info_of
from diagd.daemon.state.ledger import NONE, Entry
from diagd.daemon.state.tensors import TensorInfo

SEEN_TWICE = 2  # comparisons in a row: one could have met a tensor in the middle of being changed
EARLY_STEP = 2  # what parts by then has parted with the first updates


class How(StrEnum):
    """How ranks came to differ; the catalog's fixes go by these names."""

    LOADED = "loaded"  # made equal by their wrapper, and different before the first step
    NEVER = "never"  # different from the start, and nothing has made them equal
    UNREDUCED = "unreduced"  # equal until the first updates
    UPDATED = "updated"  # equal until the first updates, and these were made from equal gradients
    UNSENT = "unsent"  # stepped by one rank, which does not send it to the others as it does with the rest
    UNOWNED = "unowned"  # some ranks' optimizers were not given it
    CHANGED = "changed"  # equal for a while, then not
    # Of gradients:
    CLIPPED = "clipped"  # one is the other times a factor
    STOPPED = "stopped"  # reduced for a while, then no longer
    MIXED = "mixed"  # reduced from the start, but with other tensors or other ranks than meant
    LOST = "lost"  # reduced, and something else on some rank now and then


@dataclass(frozen=True, slots=True)
class Parted:
    """A tensor that should be the same and is not."""

    entry: Entry
    kind: str
    how: How
    sure: bool  # a wrapper or mesh says that the ranks must agree
    since: int  # the first step after which it was seen to differ; 0 before the first
    classes: list[list[int]]  # ranks by equal content, the largest class first
    said: str = ""  # what else speaks for it
    odd: tuple[int, ...] = ()  # the culprits, where more than their number tells them
    aside: bool = False  # worth knowing: nothing says that it should be the same, and often it need not be

    @property
    def info(self) -> TensorInfo:
        """The tensor, as the first of its ranks has it."""
        return info_of(self.entry)

    @property
    def minority(self) -> tuple[int, ...]:
        """The ranks outside the largest class; all of them on a tie."""
        return minority(self.classes)[0]

    @property
    def culprits(self) -> tuple[int, ...]:
        """The odd ones."""
        return self.odd or self.minority

    @property
    def is_tie(self) -> bool:
        """Whether no side is in the majority, and nothing else tells them apart."""
        return not self.odd and minority(self.classes)[1]


def parted_now(entry: Entry, kind: str, how: How, sure: bool) -> Parted:
    """A tensor that differs at this time."""
    return Parted(entry, kind, how, sure, entry.agreement.first_unequal, entry.agreement.classes)


def how_it_parted(entry: Entry, declared: bool) -> How:
    """By when it differed; `declared` is whether a wrapper or mesh says that it must not."""
    seen = entry.agreement
    if seen.last_equal == NONE:
        return How.LOADED if declared and entry.kind == "parameter" else How.NEVER
    if seen.first_unequal - max(seen.first, 0) <= EARLY_STEP:  # or with the first updates of a part that came later
        return How.UNREDUCED if entry.kind == "parameter" else How.NEVER
    return How.CHANGED
