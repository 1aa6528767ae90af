"""Waiting for an operation that was issued before: Work.wait, joined to the operation's record."""

import sys
import time
from collections.abc import Callable
from typing import Any
from weakref import ref

from diagd.probes import cost, groups, phases, sites
from diagd.probes.box.layout import FieldIndex, Flag, Op
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.native import operations
from diagd.probes.state import STATE

_MAX_WATCHED = 4096
_WAIT = int(FieldIndex.WAIT)
_RETURNED = int(FieldIndex.RETURNED)
_patches = Patches()
_now = time.monotonic_ns
_MASK, _TIMED = cost.MASK, cost.TIMED
_before_cost, _after_cost = cost.Sampled(), cost.Sampled()
# id of a Work, which takes no attributes -> its record, that one's serial, and a weak reference to it. One that nobody
# waits for stays here when it is gone, and another may come to lie at its place.
WATCHED: dict[int, tuple[int, int, Callable[[], Any] | None]] = {}


def install(probe: Probe, module: Any) -> None:
    """torch.distributed.distributed_c10d is there."""
    STATE.listeners.append(lambda recording: WATCHED.clear())
    before, after = operations.faster("wait_before", _before), operations.faster("wait_after", _after)
    _patches.replace(module.Work, "wait", wrapper(probe, before, after, _failed))


def remove() -> None:
    """Put torch's own method back."""
    _patches.undo()


def watch(work: Any, index: int, serial: int) -> None:
    """This is the work of that record."""
    try:
        WATCHED[id(work)] = index, serial, ref(work)
    except TypeError:  # of a backend of somebody's own: it takes no weak reference
        WATCHED[id(work)] = index, serial, None


def forget_old() -> None:
    """Called now and then: of more works than anybody will still wait for, forget the older half."""
    if len(WATCHED) > _MAX_WATCHED:
        for key in list(WATCHED)[: _MAX_WATCHED // 2]:
            WATCHED.pop(key, None)


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    box = STATE.box
    if box is None:
        return None
    now = _now()
    numbers = box.numbers
    found = WATCHED.pop(id(args[0]), None)
    if found is None or (found[2] is not None and found[2]() is not args[0]):
        return _before_unseen()
    index, serial, _ = found
    if numbers[index] != serial:
        return None  # so long ago that its place was used again
    numbers[index + _WAIT] = now
    phase = phases.begin_collective(now)
    if serial & _MASK == _TIMED:
        _before_cost.add(_now() - now)
    return index, serial, phase


def _before_unseen() -> Any:
    """C++ issued it, or the probes were off then: show at least that, where and since when this thread waits."""
    ring = STATE.box.ring() if STATE.box is not None else None
    if ring is None:
        return None
    site = sites.site(sys._getframe(3))
    index = ring.begin(Op.WAIT, -1, 0, 0, 0, -1, 0, site, 0, -1, 0, ())
    now = _now()
    ring.set(index, FieldIndex.ISSUED, now)
    ring.set(index, FieldIndex.WAIT, now)
    return index, STATE.box.numbers[index], phases.begin_collective(now)  # type: ignore[union-attr]


def _after(token: Any, result: Any) -> None:
    index, serial, phase = token
    now = _now()
    numbers = STATE.box.numbers  # type: ignore[union-attr]  # a token comes from a box
    if numbers[index] == serial:
        numbers[index + _RETURNED] = now
    if phase is not None:
        phases.end_collective(phase, now)
    if serial & _MASK == _TIMED:
        _after_cost.add(_now() - now)


def _failed(token: Any, error: BaseException) -> None:
    box = STATE.box
    ring = box.ring() if box is not None else None
    if box is not None and ring is not None and box.numbers[token[0]] == token[1]:
        ring.fail(token[0], Flag.FAILED, box.passing(groups.describe(error)))
    _after(token, None)
