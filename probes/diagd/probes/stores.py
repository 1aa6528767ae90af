"""The key-value store: the waits on it block, and a key set by the user's own code may be what others wait for.

Fact `store/joined`: the stores of the script's own that this rank has helped to make, as host:port. Of that the record
of operations may hold nothing any more by the time that another rank is asked for.
"""

import sys
import time
from collections import deque
from typing import Any

from diagd.probes import groups, sites
from diagd.probes.box.layout import FieldIndex, Flag, Op
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.signals import SIGNALS
from diagd.probes.state import STATE

_BLOCKING = {"get": Op.STORE_GET, "multi_get": Op.STORE_GET, "wait": Op.STORE_WAIT, "barrier": Op.STORE_WAIT}
_SETTING = ("set", "add", "compare_set", "multi_set", "append")
_STORES = 16  # the newest ones
_patches = Patches()
_made: deque[str] = deque(maxlen=_STORES)


def install(probe: Probe, module: Any) -> None:
    """torch.distributed.distributed_c10d is there."""
    for name, op in _BLOCKING.items():
        before = _recorder(op, only_from_user=False)
        _patches.replace(module.Store, name, wrapper(probe, before, _after, _failed))
    before = _recorder(Op.STORE_SET, only_from_user=True)
    for name in _SETTING:
        _patches.replace(module.Store, name, wrapper(probe, before, _after, _failed))
    tcp = getattr(sys.modules.get("torch._C._distributed_c10d"), "TCPStore", None)
    if tcp is not None:
        _patches.replace(tcp, "__init__", wrapper(probe, _before_join, _after_join, _failed_join))


def remove() -> None:
    """Put torch's own methods back."""
    _patches.undo()
    _made.clear()


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


_TCP = ("self", "host_name", "port", "world_size", "is_master", "timeout", "wait_for_workers")


def _before_join(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A store of the script's own that waits in its making for all its workers; torch's own are a part of INIT."""
    given = dict(zip(_TCP, args, strict=False), **kwargs)
    workers = given.get("world_size") or 0
    frame = sys._getframe(2)
    box = STATE.box
    if box is None or workers < 2 or not given.get("wait_for_workers", True) or not sites.is_user(frame):
        return None
    ring = box.ring()
    if ring is None:
        return None
    where = f"{given.get('host_name')}:{given.get('port')}"
    begun = ring.begin(Op.STORE_JOIN, -1, 0, 0, 0, -1, 0, sites.site(frame), box.passing(where), workers, 0, ())
    return (ring, begun), where


def _after_join(token: Any, result: Any) -> None:
    operation, where = token
    _after(operation, result)
    _made.append(where)
    SIGNALS.fact("store/joined", ",".join(_made))


def _failed_join(token: Any, error: BaseException) -> None:
    _failed(token[0], error)


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
