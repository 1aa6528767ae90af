"""An average of the weights in half precision that is written into at each step and stays where it was made."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.scene import Scene

LOST = 0.5  # share of the elements
WRITTEN = 16  # times
LOOKS = 2  # in a row


def averages(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks whose copy stands still."""
    signals = scene.state.signals
    found: dict[int, tuple[int, float, float]] = {}
    for rank in signals.ranks("average/lost"):
        lost, written = signals.series(rank, "average/lost"), signals.series(rank, "average/written")
        if lost is None or written is None or min(len(lost), len(written)) < LOOKS:
            continue
        if (lost.values[-LOOKS:] >= LOST).all() and written.values[-LOOKS] >= WRITTEN:
            found[rank] = int(lost.steps[0]), float(lost.values[-1]), float(written.values[-1])
    if found:
        yield _finding(scene, found)


def _finding(scene: Scene, found: dict[int, tuple[int, float, float]]) -> Finding:
    ranks = tuple(sorted(found))
    facts = [scene.state.signals.fact(ranks[0], f"average/{what}") for what in ("dtype", "names")]
    dtype, names = (fact[1] if fact is not None else "" for fact in facts)
    step, share, times = found[ranks[0]]
    some = ", ".join(names.split(",")[:3])
    text = (
        f"{words.ranks_text(ranks)}: the {dtype or 'half-precision'} copy of the model ({some})"
        f" does not follow the weights: {share:.0%} of its elements stand still though it was written {times:.0f} times"
    )
    told = tuple(
        Evidence(f"{one[1]:.0%} of the elements are as they were at the first look and are not what the weights are",
                 "probe", rank, one[0]) for rank, one in sorted(found.items())[:4]
    )  # fmt: skip
    why = "each step of the average is below half the distance to the next number of its dtype, and is rounded away"
    cause = Cause("average", why, 0.9, Basis.OBSERVATION, told)
    return Finding(
        "precision.underflow", Severity.WARNING, ranks, words.shortened(text + "."), (cause,),
        names=tuple(name for name in (*names.split(","), dtype) if name), step=step, sure=True, goes_on=True,
        key="average",
    )  # fmt: skip
