"""Every operation that Python issues on a process group, at the one place that all of them pass: its methods."""

import sys
import time
from collections.abc import Callable
from typing import Any

from diagd.probes import cost, groups, sites, waits
from diagd.probes.box.layout import FieldIndex, Flag
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.operations import METHODS, NOTHING, Method, reduce_reader, tensor_reader
from diagd.probes.state import STATE

_SEQ = int(FieldIndex.SEQ)
_ISSUED = int(FieldIndex.ISSUED)
_RETURNED = int(FieldIndex.RETURNED)
_patches = Patches()
_now = time.monotonic_ns


def install(probe: Probe, module: Any) -> None:
    """torch.distributed.distributed_c10d is there."""
    group = module.ProcessGroup
    read = tensor_reader()
    reduction = reduce_reader(module.ReduceOp)
    for method in METHODS:
        before = _recorder(method, read, reduction)
        _patches.replace(group, method.name, wrapper(probe, before, _after, _failed))


def remove() -> None:
    """Put torch's own methods back."""
    _patches.undo()


def _recorder(method: Method, read: Callable[[Any], Any], reduction: Callable[[Any], int]) -> Any:
    op, position, keywords = int(method.op), method.tensors, method.keywords
    reduces, rooted, partner, tagged = method.reduces, method.rooted, method.partner, method.tag
    quiet = position < 0  # no tensors, and no options worth reading
    any_source = int(Flag.ANY_SOURCE) if method.name == "recv_anysource" else 0
    collective = not (partner or any_source)
    table = groups.TABLE
    get_frame = sys._getframe
    site_of = sites.site
    state = STATE
    in_backward, is_async = int(Flag.IN_BACKWARD), int(Flag.ASYNC)

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entered = _now()
        box = state.box
        ring = box.ring() if box is not None else None
        if ring is None:
            return None
        handle = args[0]
        group = table.get(handle.group_name) or groups.find(handle.group_name)
        flags = any_source if state.backward_depth == 0 else any_source | in_backward
        dtype, numel, tensors, dims = NOTHING
        reduce = tag = 0
        peer = -1
        if state.detail == 2:
            if not quiet:
                value = args[position + 1] if len(args) > position + 1 else _first(kwargs, keywords)
                if value is not None:
                    dtype, numel, tensors, dims = read(value)
            if collective:
                options = kwargs["opts"] if "opts" in kwargs else args[-1]
                if reduces:
                    reduce = reduction(options)
                if getattr(options, "asyncOp", False):
                    flags |= is_async
        if rooted:
            peer = _root(options if state.detail == 2 else kwargs.get("opts", args[-1]), group.ranks)
        elif partner:
            peer = _global(args[partner + 1] if len(args) > partner + 1 else _first(kwargs, _PARTNERS), group.ranks)
        if tagged:
            tag = (args[tagged + 1] if len(args) > tagged + 1 else kwargs.get("tag", 0)) & 0x7FFFFFFF
        site = site_of(get_frame(2)) if state.detail else 0
        index = ring.begin(op, group.number, flags, dtype, reduce, peer, tag, site, 0, numel, tensors, dims)
        token = (handle if collective and group.counts else None, ring, index, flags, box.numbers[index])
        if token[4] & cost.MASK == 0:
            cost.add_sampled(_now() - entered)
        return token

    return before


_PARTNERS = ("dstRank", "srcRank")


def _first(kwargs: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((kwargs[name] for name in names if name in kwargs), None)


def _root(options: Any, ranks: tuple[int, ...]) -> int:
    root = getattr(options, "rootRank", -1)
    return ranks[root] if 0 <= root < len(ranks) else -1


def _global(partner: Any, ranks: tuple[int, ...]) -> int:
    return ranks[partner] if isinstance(partner, int) and 0 <= partner < len(ranks) else -1


def _after(token: Any, work: Any) -> None:
    handle, ring, index, _, serial = token
    now = _now()
    numbers = ring.numbers
    if handle is not None:
        numbers[index + _SEQ] = handle._get_sequence_number_for_group()
    numbers[index + _ISSUED] = now
    if work is None:
        numbers[index + _RETURNED] = now
    else:
        waits.watch(work, index, serial)
    if serial & cost.MASK == 0:
        cost.add_sampled(_now() - now)


def _failed(token: Any, error: BaseException) -> None:
    _, ring, index, flags, _ = token
    box = STATE.box
    if box is not None:
        ring.fail(index, flags | Flag.FAILED, box.passing(groups.describe(error)))
    ring.set(index, FieldIndex.RETURNED, _now())
