"""The key-value store: the waits on it block, and a key set by the user's own code may be what others wait for."""

import sys
import time
from typing import Any

from diagd.probes import groups, sites
from diagd.probes.box.layout import FieldIndex, Flag, Op
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.state import STATE

_BLOCKING = {"get": Op.STORE_GET, "multi_get": Op.STORE_GET, "wait": Op.STORE_WAIT, "barrier": Op.STORE_WAIT}
_SETTING = ("set", "add", "compare_set", "multi_set", "append")
_patches = Patches()


def install(probe: Probe, module: Any) -> None:
    """torch.distributed.distributed_c10d is there."""
    for name, op in _BLOCKING.items():
        before = _recorder(op, only_from_user=False)
        _patches.replace(module.Store, name, wrapper(probe, before, _after, _failed))
    before = _recorder(Op.STORE_SET, only_from_user=True)
    for name in _SETTING:
        _patches.replace(module.Store, name, wrapper(probe, before, _after, _failed))


def remove() -> None:
    """Put torch's own methods back."""
    _patches.undo()


def _recorder(op: Op, only_from_user: bool) -> Any:
    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        frame = sys._getframe(2)
        if only_from_user and not sites.is_user(frame):
            return None
        box = STATE.box
        ring = box.ring() if box is not None else None
        if box is None or ring is None:
            return None
        detail = box.passing(_keys(args[1] if len(args) > 1 else kwargs.get("key", kwargs.get("keys", ""))))
        return ring, ring.begin(op, -1, 0, 0, 0, -1, 0, sites.site(frame), detail, -1, 0, ())

    return before


def _keys(given: Any) -> str:
    return given if isinstance(given, str) else ", ".join(str(key) for key in list(given)[:20])


def _after(token: Any, result: Any) -> None:
    ring, index = token
    now = time.monotonic_ns()
    ring.set(index, FieldIndex.ISSUED, now)
    ring.set(index, FieldIndex.RETURNED, now)


def _failed(token: Any, error: BaseException) -> None:
    ring, index = token
    if STATE.box is not None:
        ring.fail(index, Flag.FAILED, STATE.box.passing(groups.describe(error)))
    _after(token, None)
