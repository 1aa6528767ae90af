"""Losses in logs that were NaN or infinite: which came and went, and which the live rules do not look at.

A rule sees the newest samples, and judges the loss that is trained on. A log is known to its end: each loss that it
names is followed in the order of its lines, what a restart repeats included.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from diagd.daemon.artifacts.columns import Floats, Ints, Key
from diagd.daemon.artifacts.stepping import Stretch
from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Finding, Severity
from diagd.daemon.detectors.numerics.began import LASTS
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.state.metrics_names import LOSS_PARTS, canonical

KIND = "numerics.nonfinite"
MOST = 1000  # gaps that are kept of a metric
TIMES = 2  # as long as any gap before: then it is none of those in which nothing was measured
_HELD_OUT = "val_"


@dataclass(slots=True)
class Gap:
    """Samples in a row that are not finite."""

    first: int  # step
    value: float  # the first one
    finite_before: int  # samples in a row before it
    last: int = 0
    count: int = 0
    ended: int | None = None  # the step of the finite sample behind it

    @property
    def restarted(self) -> bool:
        """Whether that is a step from before: the training was started again."""
        return self.ended is not None and self.ended <= self.last

    @property
    def is_measured(self) -> bool:
        """Whether a finite value was the rule before it, and not a lone one among places where nothing was measured."""
        return self.finite_before >= LASTS


@dataclass(slots=True)
class _Course:
    """One metric's of one rank."""

    gaps: list[Gap] = field(default_factory=list)
    finite: int = 0
    in_a_row: int = 0  # finite ones, the newest

    def take(self, steps: Ints, values: Floats) -> None:
        """More samples, in the order of the log's lines."""
        bad = ~np.isfinite(values)
        edges = [0, *(np.flatnonzero(np.diff(bad)) + 1).tolist(), len(bad)]
        for begin, end in zip(edges, edges[1:], strict=False):  # noqa: RUF007 - pairs of a list that is short
            if end > begin:
                self._run(steps[begin:end], values[begin:end], bad=bool(bad[begin]))

    def _run(self, steps: Ints, values: Floats, *, bad: bool) -> None:
        """Samples in a row that are alike in that."""
        last = self.gaps[-1] if self.gaps else None
        going_on = last is not None and last.ended is None
        if not bad:
            if last is not None and going_on:
                last.ended = int(steps[0])
            self.in_a_row = len(steps) if going_on else self.in_a_row + len(steps)
            self.finite += len(steps)
            return
        if last is None or not going_on:
            last = Gap(int(steps[0]), float(values[0]), self.in_a_row)
            self.gaps = [*self.gaps[-MOST:], last]
        last.last, last.count, self.in_a_row = int(steps[-1]), last.count + len(steps), 0

    def standing(self) -> Gap | None:
        """The gap that lasts to the end, if it is none of those in which nothing was measured."""
        if not self.gaps or self.gaps[-1].ended is not None:
            return None
        gap, longest = self.gaps[-1], max((one.count for one in self.gaps[:-1]), default=0)
        return gap if not self.finite or gap.is_measured or gap.count > TIMES * longest > 0 else None

    def over(self) -> Gap | None:
        """The longest of those that ended by themselves."""
        told = [gap for gap in self.gaps if gap.ended is not None and gap.is_measured]
        return max(told, key=lambda gap: gap.count, default=None)


Told = list[tuple[Key, Gap]]


class NonFinite:
    """One run's losses."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._courses: dict[Key, _Course] = {}

    def take(self, stretch: Stretch) -> None:
        """The next samples."""
        for key, samples in stretch.samples.items():
            if self._is_loss(key[1]):
                self._courses.setdefault(key, _Course()).take(*stretch.in_order.get(key, samples))

    def findings(self, since: int | None) -> tuple[list[Finding], list[Finding]]:
        """Those that were over in the end, and those that were not.

        Args:
            since: The step since which the loss that is trained on was found not to be finite; None: it was not. What
                follows from that is not told again.
        """
        over: Told = []
        stands: Told = []
        for key, course in self._courses.items():
            if (gap := course.standing()) is not None:
                stands.append((key, gap))
            elif (gap := course.over()) is not None:
                over.append((key, gap))
        groups = [[one for one in told if self._is_held_out(one[0][1]) is held_out and self._is_news(one, since)]
                  for told in (over, stands) for held_out in (False, True)]  # fmt: skip
        found = [self._finding(told) if told else None for told in groups]
        return [one for one in found[:2] if one is not None], [one for one in found[2:] if one is not None]

    def _is_loss(self, name: str) -> bool:
        known = canonical(name, self._names)
        return known is not None and known.removeprefix(_HELD_OUT) in ("loss", *LOSS_PARTS)

    def _is_held_out(self, name: str) -> bool:
        return (canonical(name, self._names) or "").startswith(_HELD_OUT)

    def _is_news(self, one: tuple[Key, Gap], since: int | None) -> bool:
        (_, name), gap = one
        return since is None or (self._is_held_out(name) and gap.first < since)

    def _finding(self, told: Told) -> Finding:
        """One of losses of the same split; the plainest name first."""
        told = sorted(told, key=lambda one: (canonical(one[0][1], self._names) != "loss", one[1].first))
        (rank, name), gap = told[0]
        ranks = tuple(sorted({key[0] for key, _ in told if key[1] == name}))
        names = tuple(dict.fromkeys(key[1] for key, _ in told))
        never = not self._courses[rank, name].finite
        evidence = [seen(f"{key[1]} {one.value:.4g} at {_samples(one.count)}", key[0], one.first)
                    for key, one in told[:8]]  # fmt: skip
        held_out = self._is_held_out(name)
        text = f"{name} of {words.ranks_text(ranks)} {_said(gap, never=never)}"
        text += f"; likewise {', '.join(names[1:4])}" if names[1:] else ""
        why = cause("loss", _WHY[held_out] + (_NOTHING if never else ""), 0.4, *evidence)
        return finding(KIND, _severity(gap, held_out), ranks, text, why, names=names[:20], step=gap.first,
                       key=f"logged {name}")  # fmt: skip


_WHY = {
    False: "where it comes from is not in what is known: a division by zero, a logarithm of zero, an overflow, such"
    " data, or weights that hold it already",
    True: "what is computed for the held-out data alone: a mean over nothing (an empty set, labels all masked),"
    " such data, a division or a logarithm at zero, or running statistics that model.eval() uses",
}
_NOTHING = "; or it stands where nothing is measured"


def _said(gap: Gap, *, never: bool) -> str:
    value = f"{gap.value:.4g}"
    if gap.ended is None:
        if never:
            return f"is {value} at all {_samples(gap.count)}, from step {gap.first} on"
        return f"is {value} from step {gap.first} on" + (", the last sample of the log" if gap.count == 1 else "")
    if gap.count == 1:
        how = f"was {value} at one sample, of step {gap.first}, and finite at the next"
    else:
        how = f"was {value} at {gap.count} samples in a row, from step {gap.first} to step {gap.last}, and then finite"
        how += " again"
    return how + (f": the training was started again at step {gap.ended}" if gap.restarted else "")


def _severity(gap: Gap, held_out: bool) -> Severity:
    """One alone is skipped by many scripts; but a script that ends at it was ended by it."""
    lone = gap.count < LASTS
    return Severity.INFO if lone and (held_out or (gap.ended is not None and not gap.restarted)) else Severity.WARNING


def _samples(count: int) -> str:
    return f"{count} sample{'s' * (count != 1)}"
