"""What a scan could not judge of a run, and why."""

from diagd.daemon.state.job import JobState
from diagd.daemon.state.metrics_names import find

FEW = 24  # samples: a spike is judged from 16 on, a loss that leaves from 24, a plateau from 100
STILL = 100  # samples of a plateau


def left_open(state: JobState, samples: int) -> list[str]:
    """A note each; `samples` is how many the metric has that has the most."""
    notes = []
    if samples < FEW:
        counted = f"{samples} sample{'s' * (samples != 1)} of a metric"
        notes.append(f"at most {counted}: too few for most rules, which need {FEW} or more")
    known = [find(state, rank, "loss") for rank in state.ranks()]
    norms = [find(state, rank, "grad_norm") for rank in state.ranks()]
    if any(known) and not any(norms) and samples >= STILL:  # a loss may stand still because nothing is trained
        notes.append(
            "no norm of gradients is logged (grad_norm): without it a loss within its noise, or a KL that stands still,"
            " is not judged"
        )
    return notes
