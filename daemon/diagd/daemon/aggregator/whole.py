"""Whole tensors from what the ranks have told of their parts: each part once, however many replicas hold it."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from diagd.cuda_ext.definition import MASK, finish
from diagd.daemon.ranks import rank_ranges
from diagd.daemon.regions import WHOLE, in_order, in_words

MAX_PARTS = 4096  # that are told of one tensor


class Key(NamedTuple):
    """What tensors of several ranks are one."""

    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class WholeTensor:
    """One tensor over all ranks."""

    size: int = 0  # bytes of an element
    trained: bool = False
    parts: dict[str, tuple[int, dict[str, list[int]]]] = field(
        default_factory=dict
    )  # region -> elements, total -> ranks


@dataclass(slots=True)
class Told:
    """What ranks have told of one step."""

    tensors: dict[Key, WholeTensor] = field(default_factory=dict)
    unknown: dict[tuple[str, str], tuple[str, list[int]]] = field(default_factory=dict)  # kind, name -> why, ranks
    silent: list[int] = field(default_factory=list)
    step: int | None = None  # of all that told something
    errors: dict[str, list[int]] = field(default_factory=dict)


def told(blobs: Mapping[int, bytes], serial: int, ranks: Iterable[int]) -> Told:
    """Of these ranks, in answer to this request."""
    found = Told()
    for rank in ranks:
        document = _read(blobs.get(rank, b""))
        if document.get("serial") != serial:
            found.silent.append(rank)
        elif document.get("error"):
            found.errors.setdefault(document["error"], []).append(rank)
        else:
            _take(found, rank, document)
    return found


def _read(blob: bytes) -> dict[str, Any]:
    try:
        document = json.loads(zlib.decompress(blob)) if blob else {}
    except (ValueError, zlib.error):
        return {}
    return document if isinstance(document, dict) else {}


def _take(found: Told, rank: int, document: Mapping[str, Any]) -> None:
    found.step = document["step"]
    for kind, name, dtype, size, shape, region, numel, total, trained in document["tensors"]:
        tensor = found.tensors.setdefault(Key(kind, name, dtype, tuple(shape)), WholeTensor())
        tensor.size, tensor.trained = size, tensor.trained or trained
        tensor.parts.setdefault(region, (numel, {}))[1].setdefault(total, []).append(rank)
    for kind, name, why in document["unknown"]:
        found.unknown.setdefault((kind, name), (why, []))[1].append(rank)


def sums_of(key: Key, tensor: WholeTensor) -> tuple[dict[str, str], str]:
    """The digest of the whole with the ranks that hold it, or why there is none.

    Where each rank holds all of it, those that hold another have a digest of their own.
    """
    nbytes, wanted = prod(key.shape) * tensor.size, prod(key.shape)
    parts = {region: part for region, part in tensor.parts.items() if region != WHOLE}
    if not parts:
        _, held = tensor.parts[WHOLE]
        return {f"{finish(int(total, 16), nbytes):016x}": rank_ranges(ranks) for total, ranks in held.items()}, ""
    if WHOLE in tensor.parts:
        return {}, "some ranks hold all of it, others parts"
    apart = [region for region, (_, held) in parts.items() if len(held) > 1]
    if apart:
        ranks = sorted(rank for held in parts[apart[0]][1].values() for rank in held)
        return (
            {},
            f"ranks {rank_ranges(ranks)} hold the same part, {in_words(apart[0], key.shape)}, and not the same in it",
        )
    told = sum(numel for numel, _ in parts.values())
    if told != wanted:
        return {}, f"parts of it are missing: {told} of {wanted} elements were told"
    total = sum(int(next(iter(held)), 16) for _, held in parts.values()) & MASK
    ranks = sorted({rank for _, held in parts.values() for one in held.values() for rank in one})
    return {f"{finish(total, nbytes):016x}": rank_ranges(ranks)}, ""


def parts_of(tensor: WholeTensor) -> dict[str, dict[str, str]]:
    """Of a split tensor the parts' totals, by region, with the ranks that hold them; none of one in too many parts."""
    if WHOLE in tensor.parts or len(tensor.parts) > MAX_PARTS:
        return {}
    return {
        region: {total: rank_ranges(ranks) for total, ranks in held.items()}
        for region, (_, held) in sorted(tensor.parts.items(), key=lambda part: in_order(part[0]))
    }
