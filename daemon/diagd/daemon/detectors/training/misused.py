"""Loss functions that are given something else than they are made for, as the loss's graph shows."""

from collections.abc import Iterator
from math import e, log
from typing import NamedTuple

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import figure
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen


class _Misuse(NamedTuple):
    kind: str
    text: str
    why: str
    names: tuple[str, ...]


_KINDS = {
    "softmax twice": _Misuse(
        "training.loss_plateau",
        "the loss is a cross-entropy of what has been through a soft-max already",
        "cross_entropy takes the soft-max itself: of numbers between 0 and 1 it makes probabilities that are never far"
        " apart, and gradients that are small",
        ("loss", "softmax", "cross_entropy"),
    ),
    "sigmoid before softmax": _Misuse(
        "training.loss_plateau",
        "the loss is a cross-entropy of what has been through a sigmoid",
        "cross_entropy takes the soft-max itself: of numbers between 0 and 1 it makes probabilities that are never far"
        " apart, and gradients that are small",
        ("loss", "sigmoid", "cross_entropy"),
    ),
    "sigmoid twice": _Misuse(
        "training.loss_plateau",
        "the loss is binary_cross_entropy_with_logits of what has been through a sigmoid already",
        "it takes the sigmoid itself: of numbers between 0 and 1 it makes probabilities between 0.5 and 0.73",
        ("loss", "sigmoid", "binary_cross_entropy_with_logits"),
    ),
    "softmax over samples": _Misuse(
        "training.loss_plateau",
        "the loss takes its soft-max over the samples of a batch instead of over the classes",
        "log_softmax was given dim=0: the samples compete for each class, and the classes of a sample do not",
        ("loss", "log_softmax", "dim"),
    ),
    "scores": _Misuse(
        "training.loss_divergence",
        "nll_loss is given numbers above 0, which are no logarithms of probabilities",
        "nll_loss takes log_softmax's output: plain scores have no upper end, and so the loss has no lower one",
        ("loss", "nll_loss", "log_softmax"),
    ),
}


def misused(scene: Scene) -> Iterator[Finding]:
    """One finding for all ranks: they run one program."""
    run = Run(scene)
    told = {rank: fact for rank in run.ranks if (fact := scene.state.signals.fact(rank, "loss/misused")) is not None}
    if not told:
        return
    rank = min(told)
    step, said = told[rank]
    what = next((one for one in _KINDS if said.startswith(one)), "")
    if not what:
        return
    misuse = _KINDS[what]
    why = cause(what, misuse.why, 0.95, seen("the operations from the loss on, in its graph", rank, step, "probe"),
                basis=Basis.OBSERVATION)  # fmt: skip
    yield finding(misuse.kind, Severity.WARNING, tuple(sorted(told)), misuse.text + _effect(said), why,
                  names=misuse.names, step=step, key=f"misused {what}")  # fmt: skip


def _effect(said: str) -> str:
    """What it does to the loss; the floor is that of one output at 1 and the others at 0."""
    classes = said.rpartition(" ")[2]
    if said.startswith("softmax twice") and classes.isdecimal():
        return f": with {classes} classes it cannot go below {figure(log(1 + (int(classes) - 1) / e))}"
    if said == "sigmoid twice":
        return f": for a 0 it cannot go below {figure(log(2))}, for a 1 not below {figure(log(1 + 1 / e))}"
    return ": it falls without an end, and nothing is learned" if said == "scores" else ""
