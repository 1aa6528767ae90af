"""Parameters by their place in an optimizer.

None is ever referred to weakly: torch.utils.swap_tensors, by which a module of tensor subclasses changes its device or
type, refuses a tensor that has a weak reference, and that would end the job.
"""

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple


class Place(NamedTuple):
    """One parameter of an optimizer."""

    optimizer: "weakref.ref[Any]"
    group: int
    position: int

    def tensor(self) -> Any:
        """What is there now; None where the optimizer is gone or has fewer."""
        optimizer = self.optimizer()
        try:
            return optimizer.param_groups[self.group]["params"][self.position] if optimizer is not None else None
        except (LookupError, AttributeError):
            return None


def places(optimizer: Any) -> Iterator[tuple[Place, Any]]:
    """All parameters of an optimizer, in its order, with their places."""
    ref = weakref.ref(optimizer)
    for group, members in enumerate(optimizer.__dict__.get("param_groups") or ()):
        for position, parameter in enumerate(members["params"]):
            yield Place(ref, group, position), parameter
