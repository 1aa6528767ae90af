"""Every operation that Python issues on a process group, at the one place that all of them pass: its methods."""

import sys
import time
from collections.abc import Callable
from typing import Any

from diagd.probes import cost, groups, sites, waits
from diagd.probes.box.layout import FieldIndex, Flag, Op
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.native import operations as native
from diagd.probes.operations import METHODS, Method, describe, outline, reduce_numbers, reduce_reader
from diagd.probes.state import STATE

_SEQ = int(FieldIndex.SEQ)
_ISSUED = int(FieldIndex.ISSUED)
_RETURNED = int(FieldIndex.RETURNED)
_patches = Patches()
_now = time.monotonic_ns
_MASK, _TIMED = cost.MASK, cost.TIMED
_before_cost, _after_cost = cost.Sampled(), cost.Sampled()


def install(probe: Probe, module: Any) -> None:
    """torch.distributed.distributed_c10d is there."""
    group = module.ProcessGroup
    numbers = reduce_numbers(module.ReduceOp)
    reduction = reduce_reader(numbers)
    after = native.faster("after", _after)
    for method in METHODS:
        before = native.recorder(_recorder(method, reduction), method, numbers)
        _patches.replace(group, method.name, wrapper(probe, before, after, _failed))


def remove() -> None:
    """Put torch's own methods back."""
    _patches.undo()


def _recorder(method: Method, reduction: Callable[[Any], int]) -> Any:
    op, position, keywords = int(method.op), method.tensors, method.keywords
    reduces, rooted, partner, tagged = method.reduces, method.rooted, method.partner, method.tag
    any_source = int(Flag.ANY_SOURCE) if method.name == "recv_anysource" else 0
    collective = not tagged
    counts_apart = tagged or method.op is Op.MONITORED_BARRIER  # made of sends and receives, which gloo counts
    find_group = groups.of
    get_frame = sys._getframe
    site_of = sites.site
    state = STATE
    in_backward, is_async = int(Flag.IN_BACKWARD), int(Flag.ASYNC)

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entered = _now()
        box = state.box
        if box is None:
            return None
        ring = box.ring()
        if ring is None:
            return None
        handle = args[0]
        group = find_group(handle)
        flags = in_backward | any_source if state.backward_depth else any_source
        detail = state.detail
        tensors: Any = ()
        if detail == 2 and position:
            value = args[position] if len(args) > position else _first(kwargs, keywords)
            if value is not None:
                tensors = outline(value)
        reduce = tag = 0
        peer = counted = -1
        if collective:
            options = kwargs["opts"] if kwargs and "opts" in kwargs else args[-1]
            if rooted:
                peer = _root(options, group.ranks)
            if detail == 2:
                if reduces:
                    reduce = reduction(options)
                if getattr(options, "asyncOp", False):
                    flags |= is_async
        else:
            if partner:
                peer = _global(args[partner] if len(args) > partner else _first(kwargs, _PARTNERS), group.ranks)
            tag = (args[tagged] if len(args) > tagged else kwargs.get("tag", 0)) & 0x7FFFFFFF
        if counts_apart and group.counts:
            counted = handle._get_sequence_number_for_group()
        site = site_of(get_frame(2)) if detail else 0
        key = group.number, op, flags, tensors, reduce, peer, tag, site
        template = ring.templates.get(key)
        if template is None:
            dtype, numel, count, ndim, dims = describe(tensors)
            template = ring.template(
                key, 0, numel, group.number, op, flags, dtype, reduce, ndim, count, peer, tag, site, 0, dims
            )
        index = ring.stamp(template, entered)
        serial = ring.numbers[index]
        if serial & _MASK == _TIMED:
            _before_cost.add(_now() - entered)
        if collective and counted >= 0:
            group.uncounted[1] = counted  # it lasts, and must not look like progress
        return handle if group.counts else None, ring, index, flags, serial, group.uncounted, counted

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
    handle, ring, index, _, serial, uncounted, counted = token
    now = _now()
    numbers = ring.numbers
    if handle is not None:
        if counted < 0:
            numbers[index + _SEQ] = handle._get_sequence_number_for_group() - uncounted[0]
        else:
            _leave_out(handle, uncounted, counted)
    numbers[index + _ISSUED] = now
    if work is None:
        numbers[index + _RETURNED] = now
    else:
        waits.watch(work, index, serial)
    if serial & _MASK == _TIMED:
        waits.forget_old()
        _after_cost.add(_now() - now)


def _leave_out(handle: Any, uncounted: list[int], counted: int) -> None:
    """What the backend has counted since is no collective."""
    uncounted[0] += handle._get_sequence_number_for_group() - counted
    uncounted[1] = -1


def _failed(token: Any, error: BaseException) -> None:
    handle, ring, index, flags, _, uncounted, counted = token
    if handle is not None and counted >= 0:
        _leave_out(handle, uncounted, counted)
    box = STATE.box
    if box is not None:
        ring.fail(index, flags | Flag.FAILED, box.passing(groups.describe(error)))
    ring.set(index, FieldIndex.RETURNED, _now())
