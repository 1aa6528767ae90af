"""What is odd about a learning rate, and up to which step rates are known."""

from typing import NamedTuple

from diagd.daemon.detectors.finding import Severity
from diagd.daemon.detectors.training.curves import Curve, curve_of
from diagd.daemon.state.job import JobState

STEP_SPACING = 16  # steps after which a rate that stays is told again


class Odd(NamedTuple):
    """One rank's rate that is odd."""

    key: str
    severity: Severity
    text: str
    why: str
    step: int
    confidence: float
    cause: str = ""  # the catalog's key, where it is another than that of what is odd


def rates_of(state: JobState, rank: int) -> dict[str, Curve]:
    """The rate of each parameter group that a rank has told one of."""
    names = [name for name in state.signals.names(rank) if name.startswith("lr/") and name[3:].isdigit()]
    curves = {name: curve_of(state.signals.series(rank, name)) for name in names}
    return {name: curve for name, curve in curves.items() if len(curve.values)}


def now_of(state: JobState, rank: int, curve: Curve) -> int:
    """The newest step that a rate is known for."""
    loss = state.signals.series(rank, "loss")
    known = int(loss.steps[-1]) if loss is not None and len(loss) else 0
    return max(min(known, curve.last_step + STEP_SPACING), curve.last_step)
