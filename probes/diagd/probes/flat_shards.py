"""The shares of the flat parameters of FullyShardedDataParallel, with or without use_orig_params.

A flat parameter is its module's parameters one behind the other, of which each rank has a run. What of which parameter
that is, it knows itself.
"""

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

from diagd.probes.shares import Share, Unknown, of_flat, whole

FLAT = "_flat_param"
_WRAPPER = "FullyShardedDataParallel"


class FlatShards:
    """Those of some models; looked up by what a model's tensor was found as."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self._places: dict[tuple[int, str], tuple[Any, int]] = {}  # a module by its id, and the name there
        for root in roots:
            for flat in _flat_parameters(root, set()):
                self._note(flat)

    def _note(self, flat: Any) -> None:
        numbers: dict[tuple[int, str], int] = {}
        for number, info in enumerate(flat._param_infos):
            numbers[id(info.module), info.param_name] = number
            self._places[id(info.module), info.param_name] = flat, number
        for info in flat._shared_param_infos:
            primary = numbers.get((id(info.prim_module), info.prim_param_name))
            if primary is not None:
                self._places[id(info.module), info.param_name] = flat, primary

    def of_parameter(self, name: str, module: Any, leaf: str, local: Any) -> Share:
        """The share of a parameter that its module still has by its own name.

        Raises:
            Unknown: No flat parameter that was found has it.
        """
        flat, number = self._places.get((id(module), leaf), (None, 0))
        if flat is None:
            raise Unknown("which part of it FSDP has put here is not known")
        shape = tuple(flat._shapes[number])
        if local.numel() == prod(shape):
            return whole(name, shape) if tuple(local.shape) == shape else of_flat(name, shape, (0, local.numel()), 0)
        share = _share(name, flat, number, 0)
        if share is None or share.numel != local.numel():
            raise Unknown("what lies here is not what FSDP says that does")
        return share


def of_flat_parameter(prefix: str, flat: Any, own_path: Any) -> list[Share]:
    """What a flat parameter has here of each of its parameters; their names behind this prefix.

    Raises:
        Unknown: It does not tell what it holds.
    """
    names = getattr(flat, "_fqns", None)
    if names is None or not hasattr(flat, "_shard_param_infos"):
        raise Unknown("the flat parameter does not say what it holds")
    found = []
    for number, name in enumerate(names):
        offset = flat._shard_param_infos[number].offset_in_shard
        share = _share(prefix + own_path(name), flat, number, offset) if offset is not None else None
        if share is not None:
            found.append(share)
    return found


def _share(name: str, flat: Any, number: int, at: int) -> Share | None:
    """At this place of what lies here; None where nothing of it does."""
    info = flat._shard_param_infos[number]
    if not info.in_shard:
        return None
    if flat._param_extensions[number] is not None or not _is_row_major(flat, number):
        raise Unknown("FSDP has laid it out in another way than row by row")
    return of_flat(name, flat._shapes[number], (at, at + info.numel_in_shard), info.intra_param_start_idx)


def _is_row_major(flat: Any, number: int) -> bool:
    contiguous = getattr(flat, "_contiguities", None)  # older versions of torch make it so
    return contiguous is None or bool(contiguous[number])


def _flat_parameters(module: Any, seen: set[int]) -> Iterator[Any]:
    if id(module) in seen:
        return
    seen.add(id(module))
    if any(base.__name__ == _WRAPPER for base in type(module).__mro__):
        flat = getattr(module.__dict__.get("_handle"), "flat_param", None)
        if flat is not None and hasattr(flat, "_shard_param_infos"):
            yield flat
    for child in (module.__dict__.get("_modules") or {}).values():
        if child is not None:
            yield from _flat_parameters(child, seen)
