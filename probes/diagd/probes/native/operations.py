"""The compiled path of operations and waits, made around the Python functions that it falls back to."""

from collections.abc import Callable
from functools import cache
from typing import Any

from diagd.probes import cost, groups, sites
from diagd.probes.box.layout import Flag, Op, Reduce
from diagd.probes.native import load
from diagd.probes.operations import Method, describe, dtype_number, outline


@cache
def _library() -> Any:
    native = load.library()
    if native is not None:
        from diagd.probes import waits  # which imports this

        native.use(
            groups.of, sites.kind_of, sites.intern, lambda value: describe(outline(value)), dtype_number, waits.WATCHED,
            waits.forget_old, *(cost.Sampled().add for _ in range(4)),
        )  # fmt: skip
        groups.ON_CHANGE.append(native.forget_groups)
    return native


def _chosen() -> Any:
    return _library() if load.chosen() is not None else None


def faster(make: str, function: Callable[..., Any]) -> Any:
    """What the library makes of a function, or the function itself."""
    native = _chosen()
    return getattr(native, make)(function) if native is not None else function


def recorder(before: Callable[..., Any], method: Method, reduces: dict[int, int]) -> Any:
    """The same of what comes before an operation.

    Args:
        before: Python's.
        method: What operation it is.
        reduces: Reduce operations by the hash of torch's.
    """
    native = _chosen()
    if native is None or method.tag or method.op is Op.MONITORED_BARRIER:
        return before
    any_source = int(Flag.ANY_SOURCE) if method.name == "recv_anysource" else 0
    return native.recorder(
        before, int(method.op), any_source, method.tensors, method.reduces, method.rooted, reduces, int(Reduce.OTHER)
    )
