"""The loss, from what the script calls backward on: no metric of the script's, and nothing that it filters."""

import math
import sys
import weakref
from typing import Any

from diagd.probes import broadcasting, filtered, later, misused, odd, origin, sites, targets, turns
from diagd.probes.box.layout import Live
from diagd.probes.budget import BUDGET
from diagd.probes.compiling import around_eager
from diagd.probes.guard import Patches, Probe
from diagd.probes.kept import Kept
from diagd.probes.named import NAMED
from diagd.probes.origin import ORIGIN
from diagd.probes.sentinel import SENTINEL
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

_STEP = int(Live.STEP)
_patches = Patches()
_joined: list[turns.Turn] = []


class _Losses:
    """Of the step under way."""

    def __init__(self) -> None:
        self.step = 0
        self.sum = 0.0
        self.count = 0
        self.dtype = ""
        self.finite = True  # the last one that lay on the CPU
        self.woken = False  # by one that is not
        self.bare = True  # no parameter had a gradient at the last count before a step, if there was one
        self.given = 0  # the last step in which a pass was seen to leave gradients all the same
        self.scaled: tuple[Any, Any] | None = None  # what a gradient scaler has made of a loss, and the scaler


LOSSES = _Losses()
WATCHED: dict[int, Kept] = {}  # by optimizer, of whose gradients it is followed whether they are cleared


def install(probe: Probe, module: Any) -> None:
    """torch.autograd is there, or the gradient scaler: what that scales is to be told as it was."""
    torch = sys.modules["torch"]
    if module.__name__ == "torch.autograd":
        _joined.append(turns.join(probe, following, passing=_before, passed=_after))
        odd.join(probe, _turns_bad)
        return
    _patches.replace(module.GradScaler, "scale", lambda f: around_eager(torch, probe, f, _scaling, _scaled, _ignore))


def remove() -> None:
    """Put torch's own method back."""
    _patches.undo()
    while _joined:
        probe = _joined.pop().probe
        turns.leave(probe)
        odd.leave(probe)


def _ignore(*_: Any) -> None:
    """There is nothing to do."""


def following(step: int) -> int:
    """The next step to look at."""
    return step + 1 if any(kept.unsure for kept in WATCHED.values()) else turns.small(step)


def _scaling(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args and args[0]._enabled else None


def _scaled(scaler: Any, result: Any) -> None:
    if type(result) is sys.modules["torch"].Tensor:
        LOSSES.scaled = weakref.ref(result), weakref.ref(scaler)


def _turns_bad(roots: Any) -> bool:
    """Whether this is the first loss of a stretch that are not finite.

    Seen a few steps later, the weights are no longer finite either, and nothing tells any more where it came from. On a
    device that is not known before the pass.
    """
    torch = sys.modules["torch"]
    # On the CPU no graph is captured, so of `later.possible` only the modes are asked.
    if (
        type(roots) is not torch.Tensor
        or not roots.is_cpu
        or roots.numel() != 1
        or torch._C._len_torch_dispatch_stack()
    ):
        return False
    finite = math.isfinite(roots.item())
    if finite or not LOSSES.finite:
        LOSSES.finite, LOSSES.woken = finite, False
        ORIGIN.finite = ORIGIN.finite + 1 if finite else 0
        return False
    LOSSES.finite, LOSSES.woken = False, True
    for turn in _joined:
        turn.wake()
    return True


def _before(roots: Any) -> None:
    """A backward pass begins."""
    site = sites.place(sys._getframe()) if WATCHED else ("", 0)
    for kept in WATCHED.values():
        kept.before_backward(max(STATE.live[_STEP], 0) + 1, site)
    if roots is not None:
        _look(roots)


def _after(_: Any) -> None:
    for kept in WATCHED.values():
        kept.after_backward()
    if LOSSES.bare and any(parameter.grad is not None for _, parameter in NAMED.held()):
        LOSSES.given = max(STATE.live[_STEP], 0) + 1


def _look(roots: Any) -> None:
    """Take the loss from what torch.autograd.backward was given: a tensor, or several."""
    torch = sys.modules["torch"]
    root: Any = roots if isinstance(roots, torch.Tensor) else next(iter(roots), None)
    if type(root) is not torch.Tensor or root.numel() != 1 or not later.possible(torch):
        return
    step = max(STATE.live[_STEP], 0) + 1
    if LOSSES.woken or not BUDGET.rests(step):  # without an optimizer of torch's nobody waits for a step
        LOSSES.woken = False
        _take(torch, root, step)


def _take(torch: Any, root: Any, step: int) -> None:
    if step != LOSSES.step:
        _finish()
        LOSSES.step = step
        broadcasting.look(root, step)
        targets.look(root, step)
        misused.look(root, step)
        filtered.look(root, step)
    dtype = str(root.dtype)
    if dtype != LOSSES.dtype:
        LOSSES.dtype = dtype
        SIGNALS.fact("loss/dtype", dtype.removeprefix("torch."))
    scale = _scale_of(root)
    if root.device.type == "cpu":
        value = root.item()
        LOSSES.finite = math.isfinite(value)
        if LOSSES.finite:
            ORIGIN.finite += 1
        else:
            origin.look(root, step, sys._getframe())
        _add(step, value / (1.0 if scale is None else float(scale)))
        return
    with later.unseen(torch):
        value = root.detach() if scale is None else root.detach() / scale
        later.read(value.reshape(1), lambda values: _add(step, values[0]))


def _scale_of(root: Any) -> Any:
    """By what a gradient scaler has multiplied it: a tensor on its device, or a number; None where none has."""
    if LOSSES.scaled is None:
        return None
    of, by = LOSSES.scaled[0](), LOSSES.scaled[1]()
    LOSSES.scaled = None
    return by.__dict__.get("_scale") if of is root and by is not None else None


def _add(step: int, value: float) -> None:
    if value - value != 0.0:  # NaN or infinite
        SENTINEL.tell()
    if step == LOSSES.step:
        LOSSES.sum += value
        LOSSES.count += 1
    else:
        SIGNALS.record("loss", value, step)  # it has come late, from a device


def _finish() -> None:
    if LOSSES.count:
        SIGNALS.record("loss", LOSSES.sum / LOSSES.count, LOSSES.step)
    LOSSES.sum, LOSSES.count = 0.0, 0


def step_completed() -> None:
    """The step's last backward pass is behind it."""
    if LOSSES.count:
        _finish()
