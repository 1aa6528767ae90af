"""A loss that leaps for a single step again and again, by far above all that it was before.

One step far off is the heavy tail of the data; a second one as far is something in the data that comes back: a sentinel
such as -9999 that is read as a measurement, a record in other units, a division by almost nothing. The step after it is
made from its gradient.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.training.curves import Curve, figure
from diagd.daemon.detectors.training.run import Run
from diagd.daemon.detectors.training.saying import cause, finding, seen

LEAST = 16  # samples before the first one
TIMES = 100.0  # the highest before: no tail of what was seen until then,
UNTRAINED = 10.0  # and so many times what the untrained model gives
OVER = 5  # samples later it is over,
BACK = 0.1  # below so much of its height
AGAIN = 2


def needles(run: Run, losses: Mapping[int, Curve]) -> Iterator[Finding]:
    """One finding for the ranks whose losses leap so."""
    if run.reinforced or run.adversarial:
        return
    found = {rank: places for rank, curve in losses.items() if len(places := _places(curve)) >= AGAIN}
    if not found:
        return
    ranks = tuple(sorted(found))
    worst = max(ranks, key=lambda rank: float(losses[rank].values[found[rank]].max()))
    curve, places = losses[worst], found[worst]
    steps, usual = curve.steps[places].tolist(), float(np.median(curve.values[: places[0]][-LEAST:]))
    peak = float(curve.values[places].max())
    alone = len(ranks) < len(losses)
    text = (
        f"the loss of {words.ranks_text(ranks)} leaps for single steps, from {figure(usual)} up to {figure(peak)}:"
        f" {len(steps)} times since step {steps[0]}" + (", and that of no other rank does" if alone else "")
    )
    told = seen(
        f"loss {figure(usual)} before, {figure(peak)} at most, at steps {', '.join(map(str, steps[:8]))}", worst
    )
    why = cause("data", "single batches hold values far out of range, such as a sentinel that is read as a measurement",
                0.7, told)  # fmt: skip
    yield finding("training.loss_spike", Severity.WARNING, ranks, text, why, names=("loss",), step=steps[0])


def _places(curve: Curve) -> list[int]:
    """Where the loss leaps and has come back soon after."""
    values = curve.values
    if len(values) <= LEAST:
        return []
    largest, found = float(np.abs(values[:LEAST]).max()), []  # of a loss around 0 the sign says nothing
    untrained = UNTRAINED * abs(curve.begin())
    if float(values.max()) <= max(TIMES * largest, untrained):
        return []  # as nearly always, and this is asked at every look
    for at in range(LEAST, len(values)):
        value = float(values[at])
        if value <= max(TIMES * largest, untrained):
            largest = max(largest, abs(value))
        elif float(values[at + 1 : at + 1 + OVER].min(initial=np.inf)) < BACK * value:
            found.append(at)
    return found
