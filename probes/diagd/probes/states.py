"""What an optimizer keeps for each parameter: moments of the parameter's shape, and how often it has stepped."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from diagd.probes import inventory
from diagd.probes.box.ledger import Flag, Kind
from diagd.probes.placement import Placement
from diagd.probes.places import Place, places

STEP = "step"


class Owner(NamedTuple):
    """The parameter that a state belongs to, or the state itself, by name and place."""

    name: str
    kind: Kind
    placement: Placement
    flags: int

    @classmethod
    def of(cls, found: inventory.Found) -> "Owner":
        """Of a parameter that was found."""
        return cls(found.name, Kind.STATE, found.placement, found.flags)

    def counting(self) -> "Owner":
        """Of its steps, which each rank that holds a part of it counts alike."""
        placement = self.placement.of_whole
        local = int(Flag.LOCAL) if placement.local else 0
        return self._replace(placement=placement, flags=self.flags & ~int(Flag.LOCAL) | local)


def of(optimizer: Any, owners: dict[int, Owner]) -> Iterator[tuple[Owner, Any, Callable[[], Any]]]:
    """Each state of these parameters (by id) with what it holds now, and how to read it later.

    They lie as their parameters do. All of an optimizer's count the same steps: the first stands for them.
    """
    counted = False
    where = {id(parameter): place for place, parameter in places(optimizer)}
    for parameter, kept in list((optimizer.__dict__.get("state") or {}).items()):
        owner = owners.get(id(parameter))
        mine = inventory.local(parameter)
        place = where.get(id(parameter))
        if owner is None or mine is None or place is None or not isinstance(kept, dict):
            continue
        for key, value in kept.items():
            tensor = inventory.local(value) if hasattr(value, "untyped_storage") else None
            if tensor is None or not (tensor.shape == mine.shape or (key == STEP and not counted)):
                continue
            counted = counted or key == STEP
            told = owner.counting() if key == STEP else owner
            yield told._replace(name=f"{owner.name}.{key}"), tensor, _reader(place, key)


def _reader(place: Place, key: str) -> Callable[[], Any]:
    def read() -> Any:
        there, owner = place.optimizer(), place.tensor()
        if there is None or owner is None:
            return None
        kept = (there.__dict__.get("state") or {}).get(owner)  # a plain get: the table makes what it is asked for
        return inventory.local(kept.get(key)) if kept else None

    return read
