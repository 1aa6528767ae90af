"""The parameters of this process by the ledger's names, for the probes that speak of single ones."""

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from diagd.probes import inventory
from diagd.probes.box.ledger import Flag, Kind
from diagd.probes.places import Place


class Parameter(NamedTuple):
    """One of them, by where it is held: the object itself may be replaced in the course of training."""

    name: str
    model: int  # number of its model
    owned: bool  # by some optimizer, when it was found
    trained: bool  # some optimizer owned parameters of its model when it was found
    module: "weakref.ref[Any]"
    leaf: str

    def tensor(self) -> Any:
        """The parameter as the module has it now; None where it is gone."""
        module = self.module()
        return module.__dict__["_parameters"].get(self.leaf) if module is not None else None


class Buffer(NamedTuple):
    """A buffer, likewise."""

    name: str
    module: "weakref.ref[Any]"
    leaf: str
    saved: bool  # with the model

    def tensor(self) -> Any:
        """What lies here of it; None where there is nothing to read."""
        module = self.module()
        return inventory.held(module, self.leaf, Kind.BUFFER) if module is not None else None


class Named:
    """What the last look at the models has found, in the order in which their modules were registered."""

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []
        self.buffers: list[Buffer] = []
        self.copies: list[Parameter] = []  # of models that no optimizer trains, and that are as a trained one
        self.roots: list[tuple[str, weakref.ref[Any]]] = []  # the models that train, by title
        self.strangers: list[Place] = []  # in an optimizer, and in no module
        self.looks = 0
        self._names: dict[int, Parameter] = {}  # by id, which another tensor comes to have when this one is gone

    def take(self, survey: inventory.Survey) -> None:
        """Replace what was known."""
        models: dict[str, int] = {}
        self.parameters.clear()
        self.copies.clear()
        self._names.clear()
        self.looks += 1
        self.strangers = survey.strangers
        self.roots = [(title, weakref.ref(root)) for title, root in survey.trained]
        self.follow(survey.found)
        for found in survey.found:
            if found.kind == Kind.PARAMETER:
                table = self.copies if found.flags & Flag.COPY else self.parameters
                model = models.setdefault(found.name.partition(".")[0], len(models))
                owned, trained = bool(found.flags & Flag.OWNED), bool(found.flags & Flag.TRAINED_MODEL)
                module = weakref.ref(found.module)
                table.append(Parameter(found.name, model, owned, trained, module, found.leaf))
        self._names.update((id(held), one) for one, held in self.held())

    def follow(self, found: list[inventory.Found]) -> None:
        """Know these buffers, and no others."""
        self.buffers = [
            Buffer(one.name, weakref.ref(one.module), one.leaf, not one.flags & Flag.TRANSIENT)
            for one in found
            if one.kind == Kind.BUFFER
        ]

    def name(self, tensor: Any) -> str | None:
        """The name of a parameter of some model; None where it is in none, or its model is not told apart."""
        found = self._names.get(id(tensor))
        # Its module tells: to a parameter itself nothing may refer weakly, or torch refuses to move it.
        return found.name if found is not None and found.module() is not None else None

    def of(self, optimizer: Any) -> list[tuple[Any, str | None]]:
        """An optimizer's parameters, in its own order, with their names."""
        return [(one, self.name(one)) for group in optimizer.param_groups for one in group["params"]]

    def held(self) -> Iterator[tuple[Parameter, Any]]:
        """Those that are still there, with what they hold."""
        for one in self.parameters:
            tensor = one.tensor()
            if tensor is not None:
                yield one, tensor


NAMED = Named()
