"""All that this rank holds of the models' tensors and of what optimizers keep, each with its share in the whole."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from diagd.probes import inventory, shares
from diagd.probes.box.ledger import Flag, Kind
from diagd.probes.flat_shards import FLAT, FlatShards, of_flat_parameter
from diagd.probes.placement import PLAIN
from diagd.probes.shares import Share, Unknown

_FLAT_TEXT = "fsdp "  # of placement.py, as the next
_ZERO_3 = "zero 3"
_OF_ZERO_3 = "which part of it DeepSpeed's ZeRO-3 has put here is not known"


class Holding(NamedTuple):
    """One share, and where its values are."""

    kind: Kind
    share: Share
    read: Callable[[], Any]  # the local tensor; None where it is gone
    trained: bool
    plain: bool  # a parameter that no wrapper makes the same


class Unread(NamedTuple):
    """A tensor of which it cannot be said what lies here."""

    kind: Kind
    name: str
    why: str


class _Owner(NamedTuple):
    """A parameter for which an optimizer may keep something."""

    found: inventory.Found
    shares: list[Share]
    shape: tuple[int, ...]  # of what lies here


def holdings(optimizers: Iterable[Any]) -> Iterator[Holding | Unread]:
    """Those of all models and of these optimizers."""
    survey = inventory.survey()
    flats = FlatShards(model for _, model in inventory.models())
    owners: dict[int, _Owner] = {}
    for found in survey.found:
        held, local = inventory.entry(found), found.tensor()
        if local is None:
            if found.placement.text == _ZERO_3:
                yield Unread(found.kind, found.name, _OF_ZERO_3)
            elif not found.is_empty():
                yield Unread(found.kind, found.name, "its memory is not to be read where it lies")
            continue
        try:
            parts = _shares(found, held, local, flats)
        except (Unknown, AttributeError) as error:
            yield Unread(found.kind, found.name, _why(error))
            continue
        if found.kind == Kind.PARAMETER:
            owners[id(held)] = _Owner(found, parts, tuple(local.shape))
        read = inventory.reader(found.module, found.leaf, found.kind)
        trained = bool(found.flags & (Flag.TRAINABLE | Flag.OWNED)) and found.kind == Kind.PARAMETER
        plain = found.kind == Kind.PARAMETER and found.placement is PLAIN
        for share in parts:
            yield Holding(found.kind, share, read, trained, plain)
    for optimizer in optimizers:
        yield from _states(optimizer, owners)


def _shares(found: inventory.Found, held: Any, local: Any, flats: FlatShards) -> list[Share]:
    if inventory.is_dtensor(held):
        return [shares.of_dtensor(found.name, held)]
    if found.kind == Kind.PARAMETER and found.placement.text.startswith(_FLAT_TEXT):
        if found.leaf == FLAT:
            return of_flat_parameter(found.name.removesuffix(FLAT), held, inventory.own_path)
        return [flats.of_parameter(found.name, found.module, found.leaf, local)]
    if found.kind == Kind.PARAMETER and found.placement.text == _ZERO_3:
        raise Unknown(_OF_ZERO_3)
    return [shares.whole(found.name, local.shape)]


def _states(optimizer: Any, owners: dict[int, _Owner]) -> Iterator[Holding | Unread]:
    """What it keeps lies as its parameter does, or is of no part of it, as a number of steps."""
    for parameter, kept in list((optimizer.__dict__.get("state") or {}).items()):
        owner = owners.get(id(parameter))
        if owner is None or not isinstance(kept, dict):
            continue
        for key, value in kept.items():
            local = inventory.local(value) if hasattr(value, "untyped_storage") else None
            if local is None:
                continue
            try:
                parts = _shares_of_state(owner, key, value, local)
            except (Unknown, AttributeError) as error:
                yield Unread(Kind.STATE, f"{owner.found.name}.{key}", _why(error))
                continue
            for share in parts:
                yield Holding(Kind.STATE, share, lambda local=local: local, True, False)  # type: ignore[misc]


def _shares_of_state(owner: _Owner, key: str, value: Any, local: Any) -> list[Share]:
    names = [f"{share.name}.{key}" for share in owner.shares]
    if inventory.is_dtensor(value):
        return [shares.of_dtensor(names[0], value)]
    if tuple(local.shape) == owner.shape and local.dim():
        return [share._replace(name=name) for share, name in zip(owner.shares, names, strict=True)]
    if local.numel() > 1 and any(share.region != shares.WHOLE for share in owner.shares):
        raise Unknown("it is of another shape than the parameter, which is split")
    return [shares.whole(name, local.shape) for name in names]


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, Unknown) else f"this torch is of another make: {error}"
