"""A loss that a log tells without the norm of gradients, and that no sample of has ever moved.

Without that norm it is not known whether weights are updated, so a loss that stays within its noise says nothing. But
the losses of different batches differ: where all are the same as far as they are written, from the first on, the loss
depends neither on the batch nor on what is trained.
"""

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.training.curves import GRAINS, Curve, coarse
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

LEAST = 100  # samples
FINE = 1000  # times the last decimal that is written: coarser values may well be equal


def unmoved(run: Run, losses: dict[int, Curve]) -> Finding | None:
    """The losses of all ranks, where none has ever moved and no norm tells whether anything is trained."""
    if run.reinforced or run.adversarial or any(len(run.gradient(rank).values) for rank in losses):
        return None
    if not all(_never_moves(curve) for curve in losses.values()):
        return None
    ranks, (curve, *_) = tuple(losses), losses.values()
    count, level = len(curve.values), float(curve.values[-1])
    text = (
        f"the loss of {words.ranks_text(ranks)} is {level:.7g} at all {count} samples from step {int(curve.steps[0])}"
        f" to {curve.last_step}: it depends neither on the batch nor on what is trained"
    )
    why = cause("unmoved", "nothing is trained (a learning rate of 0, frozen or detached weights), or what the model"
                " computes does not reach the loss (a constant output, inputs that are all alike)", 0.8,
                seen(f"{count} losses, equal as far as they are written", ranks[0], int(curve.steps[0]), "log"),
                basis=Basis.INFERENCE)  # fmt: skip
    return finding("training.loss_plateau", Severity.WARNING, ranks, text, why, names=("loss",), step=curve.last_step,
                   key="unmoved")  # fmt: skip


def _never_moves(curve: Curve) -> bool:
    values = curve.values
    if len(values) < LEAST or values[0] == 0 or not (values == values[0]).all():
        return False
    return bool(abs(values[0]) >= FINE * coarse(values) / GRAINS)
