"""Optimizers that never step, while gradients are added up in what they own."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.saying import cause, finding, seen

SOME = 96  # backward passes: fewer may be accumulated for one step,
MANY = 256  # and hardly ever so many


def unstepped(scene: Scene) -> Iterator[Finding]:
    """Ranks on which no optimizer has stepped so far."""
    found: dict[int, tuple[str, int]] = {}
    for rank in scene.state.ranks():
        fact = scene.state.signals.fact(rank, "optimizer/unstepped")
        kind, _, count = fact[1].partition(" ") if fact is not None else ("", "", "")
        if count.isdecimal() and int(count) >= SOME and scene.state.signals.series(rank, "lr/0") is None:
            found[rank] = kind, int(count)
    if not found:
        return
    ranks = tuple(sorted(found))
    kind, passes = found[ranks[0]]
    text = (
        f"no optimizer of {words.ranks_text(ranks)} has stepped in {passes} backward passes: the parameters of its"
        f" {kind} have gradients and hold what they held"
    )
    told = [seen(f"{passes} backward passes, 0 optimizer steps; parameters unchanged", rank, source="probe")
            for rank in ranks[:4]]  # fmt: skip
    why = cause("unstepped", "optimizer.step() is never called, or a wrapper leaves it out each time", 0.85, *told,
                basis=Basis.OBSERVATION)  # fmt: skip
    severity = Severity.WARNING if passes >= MANY else Severity.INFO
    yield finding("training.dead_parameters", severity, ranks, text, why,
                  names=("optimizer", "optimizer.step", "grad"), step=passes, key="dead unstepped")  # fmt: skip
