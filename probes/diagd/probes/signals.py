"""The scalars of this rank's training, one value at a step, and facts in words: the one way on which they leave it.

Names, each with the unit that the script computes in:

    loss                    what backward was called on, the mean over the backward passes of a step
    loss/filtered           the part of it that nan_to_num has put another number for (filtered.py)
    lr/<group>              of an optimizer's parameter group; lr/initial the highest a scheduler begins or peaks with,
                            lr/scheduled how often the one that has gone furthest was stepped, and lr/orphaned 1 where
                            all that are stepped have optimizers that never step
    grad_norm               2-norm over all gradients that the optimizer is given; of further optimizers grad_norm@1, …
    grad_norm/<parameter>   of one parameter's gradient; likewise param_norm/<parameter>
    update_norm/<parameter> 2-norm of what one step changed of it
    clip_norm               what clipping returned, the norm before it; clip_norm/limit what it was told to clip to
    gradients/kept          1 where the gradients of the step before were not cleared; @1, …: of later optimizers
    gradients/discarded     part of the backward passes of a step with several, whose gradients were cleared unused
    gradients/passes        backward passes in a step, where it is another number than before
    gradients/nonfinite     gradients that are not finite, once, of gradients/all
    gradients/own_nonfinite likewise, as this rank's own pass gave them (own_gradients.py)
    parameters/<what>       counts of parameters that are owned, unowned, without gradient, … (census.py)
    scaler/scale            the gradient scaler's factor
    scaler/skipped          1 where it left a step out, under the step under way
    autocast/on, /share     what a step casts to, and the share of the calls under it (autocast.py, forwards.py)
    autocast/lost           share of the modules that ran under it before, and no longer do (uncast.py)
    forward/absmax/<module> largest output in float16; overflow/value: a product beyond its end (overflow.py)
    roundoff/<what>         updates of weights in half precision that are rounded away (roundoff.py)
    step/collectives        how often the ranks have met by the end of that step: collectives on groups of all of them
    logged/<metric>         what the script logs itself, by its name there

A fact `optimizer/<group>` holds a parameter group's other settings. A probe that needs others writes `<probe>/<name>`.
Parameters are named as in the ledger of tensors.
"""

import threading
from typing import Any

from diagd.probes.box import signals as layout
from diagd.probes.box.layout import Live
from diagd.probes.box.signals import SignalWriter
from diagd.probes.state import STATE

_STEP = int(Live.STEP)
_EARLY = 512  # kept of a process that is no rank yet


class Signals:
    """Takes what the probes see; costs about a microsecond, and does nothing where there is no rank."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # not needed for one call: for several that belong together
        self._box: Any = None
        self._writer: SignalWriter | None = None
        self._early: list[tuple[str, float | str]] = []

    def record(self, name: str, value: float, step: int | None = None) -> None:
        """One scalar, NaN and infinities as they are.

        Args:
            name: As above.
            value: A Python number: reading a tensor on a device would wait for it.
            step: The training step that it belongs to, from 1; None: the one under way.
        """
        box = STATE.box
        if (box is None or box is not self._box) and not self._begin(name, value):
            return
        writer = self._writer
        if writer is not None and STATE.recording:
            writer.sample(name, max(STATE.live[_STEP], 0) + 1 if step is None else step, value)

    def fact(self, name: str, text: str, step: int | None = None) -> None:
        """Something in words (a place, a module, a dtype); of a name the newest is kept."""
        box = STATE.box
        if (box is None or box is not self._box) and not self._begin(name, text):
            return
        writer = self._writer
        if writer is not None and STATE.recording:
            writer.fact(name, max(STATE.live[_STEP], 0) + 1 if step is None else step, text)

    def _begin(self, name: str, value: float | str) -> bool:
        """Whether this process has become a rank; what comes before that is kept for then."""
        if STATE.box is None:
            if not STATE.forked and len(self._early) < _EARLY:
                self._early.append((name, value))
            return False
        self._box, self._writer = STATE.box, None
        early, self._early = self._early, []
        try:
            self._writer = SignalWriter(STATE.box.path.with_suffix(layout.SUFFIX))
        except OSError as error:
            STATE.note(f"no signals: {error.strerror or error}")
            return False
        for earlier, what in early:
            if isinstance(what, str):
                self._writer.fact(earlier, 1, what)
            else:
                self._writer.sample(earlier, 1, what)
        return True


SIGNALS = Signals()
