"""Batches that are counted within epochs, `[3/10][57/100]`: neither number alone is the step."""

import re
from collections.abc import Sequence

from diagd.probes.box.metric_text import Form, step_of

_BETWEEN, _CLOSES = re.compile(r"\s*[\])]\s*[\[(]\s*"), re.compile(r"\s*[\])]")


def counts(form: Form, pieces: Sequence[str]) -> tuple[int, ...]:
    """The places of what a line counts: of its one number, or of epoch, batch and batches; none for nothing.

    Args:
        form: The line's.
        pieces: Of the line: texts and numbers by turns.
    """
    if form.step >= 0 or form.counter < 0:
        return ()
    at, batch = form.counter, form.counter + 4
    if form.total != at + 2 or batch + 3 >= len(pieces) or not _BETWEEN.fullmatch(pieces[at + 3]):
        return (at,)
    within = pieces[batch + 1].strip() == "/" and _CLOSES.match(pieces[batch + 3]) is not None
    return (at, batch, batch + 2) if within else (at,)


def count_of(texts: Sequence[str]) -> int | None:
    """The count that the numbers at these places make; None where one of them is none."""
    told = [step_of(text) for text in texts]
    epoch, *within = told
    if not within or epoch is None:
        return epoch
    batch, batches = within
    return None if batch is None or not batches else epoch * batches + batch
