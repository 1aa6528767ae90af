"""One thing that grows on one rank's host, with what is known of it."""

from dataclasses import dataclass

from diagd.daemon.detectors.growth import Growth
from diagd.daemon.detectors.holding import KEPT, Allocated, Holder, Loader
from diagd.daemon.state.model import Frame

RSS, WORKER_RSS, CHILD_RSS = "rss", "worker rss", "child rss"


@dataclass(frozen=True, slots=True)
class Grows:
    """One thing that grows on one rank."""

    rank: int
    what: str  # RSS, WORKER_RSS or CHILD_RSS
    growth: Growth
    why: str  # graph, kept, alone, epoch, long; empty: not known to be a leak
    ends: bool  # a cache or a buffer by the script's text
    holder: Holder | None = None
    loader: Loader | None = None
    allocated: Allocated | None = None  # where its Python allocates what it keeps, where that was asked for

    @property
    def places(self) -> tuple[Frame, ...]:
        """Where it is filled."""
        if self.what == WORKER_RSS:
            kept = [place for _, verdict, place in self.filled if verdict == KEPT]
            return tuple(kept[:2])
        if self.holder is not None:
            return self.holder.places
        return self.allocated.places if self.allocated is not None else ()

    @property
    def filled(self) -> tuple[tuple[str, str, Frame], ...]:
        """Containers of the dataset that its methods fill."""
        return self.loader.grown if self.loader is not None else ()
