"""Why one rank is slower than others, where its totals do not say but repeated looks at it do."""

from collections.abc import Sequence
from dataclasses import dataclass

from diagd.daemon.detectors import looks
from diagd.daemon.detectors.finding import Basis, Evidence
from diagd.daemon.detectors.slowness import HOST_PART, Excess
from diagd.daemon.state.job import JobState

INPUT_PART = 0.5  # of the excess


@dataclass(frozen=True, slots=True)
class Observed:
    """A kind, the key of its fix, words, and what they rest on."""

    kind: str
    key: str
    why: str
    confidence: float
    basis: Basis
    evidence: tuple[Evidence, ...]


def observed(state: JobState, rank: int, others: Sequence[int], step_s: float, excess: Excess) -> Observed | None:
    """Input or storage, where the looks lay most of the excess to it; None where they do not, or were too few."""
    return _input(state, rank, others, step_s, excess) or _storage(state, rank, others, step_s, excess)


def _input(state: JobState, rank: int, others: Sequence[int], step_s: float, excess: Excess) -> Observed | None:
    """The step loop asks for its next batch and does not get it; only inferred, as no one but the stack says so."""
    part = looks.asked(state, rank, others)
    if part.share * step_s < INPUT_PART * excess.total_s or not part.seen:
        return None
    said = f"in {part.seen} of {part.looks} looks the loop over steps was asking its iterator or queue for more"
    evidence = (Evidence(said, "stack", rank),)
    return Observed("slow.data", "data", "its input comes late", 0.7, Basis.INFERENCE, evidence)


def _storage(state: JobState, rank: int, others: Sequence[int], step_s: float, excess: Excess) -> Observed | None:
    part = looks.storage(state, rank, others)
    if part.share * step_s < HOST_PART * excess.total_s or not part.seen:
        return None
    file = part.file.removesuffix(" (deleted)").rpartition("/")[2]
    said = f"its main thread was in calls on files in {part.seen} of {part.looks} looks, most often {part.call} on"
    evidence = (Evidence(f"{said} {part.file}", "kernel", rank),)
    why = f"it waits for storage ({part.call} on {file})"
    return Observed("slow.host", "storage", why, 0.85, Basis.OBSERVATION, evidence)
