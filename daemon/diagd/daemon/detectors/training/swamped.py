"""A loss whose whole fall is one of its terms': what it was written for has gained nothing since the first step.

The total is a curve to be proud of. It falls because a regulariser, summed where the others are averaged, has pushed
all weights to 0; with them nothing is left to tell one sample from another.
"""

import numpy as np

from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.training.curves import figure
from diagd.daemon.detectors.training.plateau import is_flat
from diagd.daemon.detectors.training.run import Metric, Run
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.detectors.training.sums import Terms, bounds, follows

FIRST = 5  # samples that show what the untrained model gives
MOST = 0.9  # of the loss at first: beside so much the others hardly have a say in where the weights go
LONG = 150  # samples: that nothing moves but the penalty is plain by then
LEFT = 0.1  # of its level at first: it was learned, at whatever cost


def swamped(run: Run, fitted: Terms) -> Finding | None:
    """The term that stands still beside one that has made up nearly all of the loss and has fallen."""
    weighted = np.abs(fitted.values * fitted.weights)
    first, last = np.median(weighted[:FIRST], axis=0), np.median(weighted[-len(weighted) // 3 :], axis=0)
    main = int(first.argmax())
    if first[main] < MOST * first.sum() or last[main] > LEFT * first[main]:
        return None
    rest = [n for n, one in enumerate(fitted.metrics) if n != main and not bounds(one) and not follows(one)]
    still = [n for n in rest if last[n] > 0 and is_flat(fitted.metrics[n].curve)]
    if not still or len(still) < len(rest):
        return None
    lost = fitted.metrics[max(still, key=lambda n: float(first[n]))]
    return _found(run, fitted.metrics[main], lost, float(first[main] / first.sum()))


def _found(run: Run, main: Metric, lost: Metric, share: float) -> Finding:
    count = len(lost.curve.steps)
    text = (
        f"all that the loss has lost is {main.name}, {share:.0%} of it at first ({figure(main.curve.begin())}, now"
        f" {figure(main.curve.values[-1])}); {lost.name} has stayed at {figure(float(np.median(lost.curve.values)))}"
        f" within its noise for {count} samples"
    )
    why = cause("scale", "that term's gradients were nearly all there was, and took the weights to where it is small:"
                " it is summed where the others are means, or weighs too much", 0.7,
                *(seen(f"{one.name} {figure(one.curve.begin())} at first, {figure(one.curve.values[-1])} now", one.rank)
                  for one in (main, lost)))  # fmt: skip
    long = count >= LONG
    return finding("training.loss_component", Severity.WARNING if long else Severity.INFO, run.ranks, text, why,
                   names=(lost.name, main.name, "loss"), step=main.curve.last_step)  # fmt: skip
