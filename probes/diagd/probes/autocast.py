"""Casts of weights that autocast keeps beyond the weights' change: a region that stays open over optimizer steps.

Autocast casts a float32 leaf once and hands the same copy out until the outermost region ends. Who updates the weights
inside a region trains them, and computes with their first values for ever. The proof lies in the graph of a loss: the
node that made a cast is the one of an earlier backward pass, though the weight's version counter has moved on since.
Weights that are swapped in place leave no version behind: a module that has been called in a region is found with
another content of its weight when it is called again (forwards.py looks, at some steps).

Signal `autocast/on`, of each step with a backward pass: whether a region was entered for it that casts, 0 no, 1 to
bfloat16, 2 to float16, 3 to another dtype.
"""

import sys
import threading
from typing import Any

from diagd.probes import cutting, nodes, overflow, sites, turns, uncast
from diagd.probes.box.layout import Live
from diagd.probes.compiling import around_eager
from diagd.probes.fast import FAST, Fast
from diagd.probes.guard import Patches, Probe
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

_CASTS = 8  # weights whose casts are compared
_NODES = 20_000  # of a graph that are looked at, at about a microsecond each
_LOOKS = 6  # at graphs, for each place that opens regions: three are enough to know
_AGAIN = 64  # steps after which a place is looked at once more: what is done in its regions may have changed
_CODES = {"torch.bfloat16": 1, "torch.float16": 2}
_STEP = int(Live.STEP)
_patches = Patches()
_joined: list[Probe] = []
_torch: Any = None


class _Region:
    """The outermost region that is open in the training thread."""

    def __init__(self) -> None:
        self.open = False
        self.site = 0  # string: where it was entered
        self.place: list[Any] = []  # the same as function, file and line, where there was no box then
        self.backwards = 0
        self.casts: list[tuple[Any, Any, int]] = []  # node that made a cast, its weight, that one's version then
        self.looks: dict[int, int] = {}  # by site
        self.several: set[int] = set()  # sites of regions with more than one backward pass; others are not looked at
        self.serial = 0  # of what autocast keeps: another one after each time that it was emptied
        self.casts_to = 0  # what the last region that casts was entered for
        self.cast_in = 0  # the step under way then
        self.step = 0  # under way at the last backward pass, and what that one's regions cast to
        self.step_on = 0


REGION = _Region()


def install(probe: Probe, module: Any) -> None:
    """torch.amp.autocast_mode is there."""
    global _torch
    _torch = sys.modules["torch"]
    STATE.listeners.append(_at_switch)
    owner = module.autocast
    _joined.append(probe)
    turns.join(probe, turns.small, passing=_note_backward)
    _patches.replace(owner, "__enter__", lambda f: around_eager(_torch, probe, f, _entering, _ignore, _ignore))
    _patches.replace(owner, "__exit__", lambda f: around_eager(_torch, probe, f, _leaving, _left, _left))
    _patches.replace(
        _torch, "clear_autocast_cache", lambda f: around_eager(_torch, probe, f, _always, _emptied, _ignore)
    )


def remove() -> None:
    """Put torch's own methods back."""
    _patches.undo()
    cutting.put_back()
    while _joined:
        turns.leave(_joined.pop())


def _at_switch(recording: bool) -> None:
    if STATE.box is None:
        overflow.forget()
        cutting.put_back()
        REGION.__init__()  # type: ignore[misc]  # a forked child begins anew


def _entering(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if threading.get_ident() != STATE.trainer:
        return
    region = args[0]
    if region._enabled and _torch.is_grad_enabled():
        REGION.casts_to = _CODES.get(str(region.fast_dtype), 3)
        REGION.cast_in = _under_way()
        if REGION.casts_to == _CODES["torch.float16"]:
            overflow.saw_halves()
    if REGION.open:
        if not region._enabled:
            uncast.switched_off(sys._getframe(2))
        return
    REGION.open = True
    FAST[Fast.CASTS] = 1
    frame = sys._getframe(2)
    if STATE.box is not None:
        REGION.site = sites.site(frame)
    else:
        REGION.site = 0
        REGION.place = next((entry for entry in sites.frames_from(frame) if entry[3]), [])


def _leaving(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not REGION.open or threading.get_ident() != STATE.trainer:
        return None
    if STATE.box is not None:
        cutting.look(_torch, _joined[0], args[0], _under_way())
    return True


def _left(token: Any, result: Any) -> None:
    depth = _torch.autocast_increment_nesting() - 1
    _torch.autocast_decrement_nesting()
    if depth == 0:
        _close()


def _ignore(*_: Any) -> None:
    """There is nothing to do afterwards."""


def _always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return True


def _emptied(token: Any, result: Any) -> None:
    REGION.serial += 1


def _close() -> None:
    """The outermost region has ended, and with it all casts."""
    REGION.open = False
    FAST[Fast.CASTS] = int(overflow.HALVES.seen)
    REGION.serial += 1
    REGION.backwards = 0
    REGION.casts.clear()


def _under_way() -> int:
    return max(STATE.live[_STEP], 0) + 1 if STATE.live is not None else 1


def _note_backward(_: Any) -> None:
    """A backward pass begins, in a region or after one: tell what the passes of the step before were for."""
    step = _under_way()
    if step != REGION.step:
        if REGION.step:
            SIGNALS.record("autocast/on", REGION.step_on, REGION.step)
        REGION.step, REGION.step_on = step, 0
    if REGION.cast_in == step or REGION.open:
        REGION.step_on = max(REGION.step_on, REGION.casts_to)
    if not REGION.open:
        REGION.casts_to = 0


def swapped(where: str) -> None:
    """A module was called again in a region, and its weight is another one than when it was cast.

    Args:
        where: The module's name.
    """
    live = STATE.live
    if live is None or live[Live.STALE_CAST_STEP]:
        return
    SIGNALS.fact("autocast/swapped", where)
    live[Live.STALE_CAST_SITE] = REGION.site or _interned(REGION.place)
    live[Live.STALE_CAST_STEP] = max(live[_STEP], 0) + 1


def before_backward(roots: Any) -> None:
    """A backward pass begins inside a region; most regions see one or none.

    Args:
        roots: What torch.autograd.backward was given: a tensor, or several.
    """
    live = STATE.live
    REGION.backwards += 1
    if live is None or live[Live.STALE_CAST_STEP] or not _is_looked_at(REGION.site, max(live[_STEP], 0)):
        return
    found = _casts([roots] if hasattr(roots, "grad_fn") else list(roots))
    if any(_is_stale(node, version) for node, _, version in found):
        live[Live.STALE_CAST_SITE] = REGION.site or _interned(REGION.place)
        live[Live.STALE_CAST_STEP] = max(live[Live.STEP], 0) + 1
        REGION.casts.clear()  # they keep parts of the graph
    else:
        REGION.casts = found


def _is_looked_at(site: int, step: int) -> bool:
    if REGION.backwards >= 2:
        REGION.several.add(site)
    if site not in REGION.several:
        return False
    looks = REGION.looks.get(site, 0)
    if looks >= _LOOKS and step % _AGAIN:
        return False
    REGION.looks[site] = looks + 1
    return True


def _interned(place: list[Any]) -> int:
    box = STATE.box
    if box is None or not place:
        return 0
    function, file, line, _ = place
    return box.intern((file, line), f"{file}\t{line}\t{function}")


def _is_stale(node: Any, version: int) -> bool:
    """Whether the cast was made for an earlier backward pass, when the weight was another."""
    return any(node is other and version != before for other, _, before in REGION.casts)


def _casts(roots: list[Any]) -> list[tuple[Any, Any, int]]:
    """Nodes of these tensors' graphs that cast a leaf, nearest to the roots first."""
    found: list[tuple[Any, Any, int]] = []
    pending = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(pending)
    for _ in range(_NODES):
        if not pending or len(found) >= _CASTS:
            break
        node = pending.pop()
        following = [after for after, _ in node.next_functions if after is not None]
        if len(following) == 1 and nodes.kind(node) == "ToCopyBackward0" and nodes.leaf(following[0]) is not None:
            weight = nodes.leaf(following[0])
            found.append((node, weight, weight._version))
            continue
        pending += [after for after in following if after not in seen]
        seen.update(following)
    return found
