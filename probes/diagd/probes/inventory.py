"""The models and optimizers of this process, found without a change to the script, and the tensors they hold.

They are looked for among the objects that Python's garbage collector knows, so no call of a model is touched for it;
only types are asked what they are, as an object's own `__class__` may run code of the script's.
"""

import gc
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from diagd.probes import watching
from diagd.probes.box.ledger import Flag, Kind
from diagd.probes.placement import BARE, PLAIN, Placement, Wrapped, of_dtensor, wrapped_by
from diagd.probes.places import Place, places
from diagd.probes.replicated import over_replicas

# Names by which wrappers hold what they wrap: no part of the script's own names.
_INNER = frozenset({"module", "_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"})
_WRAPPERS = frozenset({
    "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule", "CheckpointWrapper", "DataParallel",
    "DeepSpeedEngine",
})  # fmt: skip


class Found(NamedTuple):
    """One tensor, by where it is held: the object itself may be replaced in the course of training."""

    name: str
    kind: Kind
    module: Any
    leaf: str
    placement: Placement
    flags: int

    def tensor(self) -> Any:
        """What this rank itself holds of it now; None where there is nothing any more."""
        return held(self.module, self.leaf, self.kind)

    def is_empty(self) -> bool:
        """Whether nothing of it lies here at all, as of a tensor that has fewer rows than there are shards."""
        tensor = entry(self)
        if tensor is not None and is_dtensor(tensor):
            tensor = tensor._local_tensor
        return tensor is None or (_is_plain(tensor) and not tensor.numel())


class _Place(NamedTuple):
    path: str
    kind: Kind
    module: Any
    leaf: str
    tensor: Any
    placement: Placement


def entry(found: Found) -> Any:
    """The parameter or buffer that its module has under its name now, whatever that is."""
    table = found.module.__dict__.get("_parameters" if found.kind == Kind.PARAMETER else "_buffers") or {}
    return table.get(found.leaf)


def held(module: Any, leaf: str, kind: Kind) -> Any:
    """A module's parameter or buffer, of a DTensor the part that lies here; None where there is none to read."""
    table = module.__dict__.get("_parameters" if kind == Kind.PARAMETER else "_buffers") or {}
    return local(table.get(leaf))


def reader(module: Any, leaf: str, kind: Kind) -> Callable[[], Any]:
    """What `held` gives, at any later time; keeps nothing alive."""
    ref = weakref.ref(module)
    return lambda: held(there, leaf, kind) if (there := ref()) is not None else None


def local(tensor: Any) -> Any:
    """The plain tensor behind it; None where its memory is not to be read."""
    if tensor is None:
        return None
    if is_dtensor(tensor):
        tensor = tensor._local_tensor
    strided = sys.modules["torch"].strided
    if not _is_plain(tensor) or tensor.layout is not strided or tensor.device.type not in ("cpu", "cuda"):
        return None
    return tensor if tensor.numel() and tensor.untyped_storage().size() else None


def _is_plain(tensor: Any) -> bool:
    torch = sys.modules["torch"]
    return type(tensor) in (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor))


class Survey(NamedTuple):
    """What there is: the models' tensors, and parameters that optimizers own though no module holds them."""

    found: list[Found]
    strangers: list[Place]
    trained: tuple[tuple[str, Any], ...] = ()  # the models that an optimizer has parameters of, each with its title
    titled: tuple[tuple[str, Any], ...] = ()  # all that are told apart, by the titles that their tensors' names have


def take(stepping: Any = None) -> list[Found]:
    """The tensors of `survey` alone."""
    return survey(stepping).found


def survey(stepping: Any = None) -> Survey:
    """All tensors of all models, each once; the names are those that every rank with such a model gives it.

    Args:
        stepping: The optimizer that is about to step: of two trained models that look alike, the one that it owns is
            meant (the other may be what a resumption has left behind).
    """
    modules, optimizers = _objects()
    owned = {number for optimizer in optimizers for number in _owned(optimizer)}
    inner = {id(child) for module in modules for child in _children(module).values()}
    roots = [module for module in modules if id(module) not in inner]
    seen: set[int] = set()
    models = [_placed_alike(list(_walk(root, "", BARE, seen))) for root in roots]
    titles = [title(root) for root in roots]
    titled = list(_titled(titles, models, owned, _owned(stepping) if stepping is not None else set()))
    root_of = {id(places): root for root, places in zip(roots, models, strict=True)}
    found = [found for title, places in titled for found in _of_model(title, places, owned)]
    kept = {id(place.tensor) for places in models for place in places}
    trained = tuple(
        (title, root)
        for title, root, places in zip(titles, roots, models, strict=True)
        if any(id(place.tensor) in owned for place in places)
    )
    owning = [place for optimizer in optimizers for place in places(optimizer)]
    strangers = [place for place, parameter in owning if id(parameter) not in kept]
    return Survey(found, strangers, trained, tuple((told, root_of[id(places)]) for (told, _), places in titled))


def models() -> list[tuple[str, Any]]:
    """All modules that are in no other one, each with its title."""
    modules, _ = _objects()
    inner = {id(child) for module in modules for child in _children(module).values()}
    return [(title(module), module) for module in modules if id(module) not in inner]


def optimizers() -> list[Any]:
    """All that there are, also such as have not stepped yet."""
    return _objects()[1]


def own_path(path: str) -> str:
    """A module's path without the names by which wrappers hold what they wrap."""
    return ".".join(part for part in path.split(".") if part not in _INNER)


def _objects() -> tuple[list[Any], list[Any]]:
    torch = sys.modules["torch"]
    wanted = torch.nn.Module, torch.optim.Optimizer
    kinds: dict[type, int] = {}
    found: tuple[list[Any], list[Any]] = ([], [])
    for thing in gc.get_objects():
        kind = type(thing)
        which = kinds.get(kind)
        if which is None:
            which = kinds[kind] = next((n for n, base in enumerate(wanted) if base in kind.__mro__), -1)
        if which >= 0:
            found[which].append(thing)
    known = {id(module) for module in found[0]}  # the collector does not tell of what was frozen in it
    found[0].extend(module for module in watching.models() if id(module) not in known)
    found[1].extend(watching.optimizers())
    return found


def _owned(optimizer: Any) -> set[int]:
    return {id(parameter) for _, parameter in places(optimizer)}


def _children(module: Any) -> dict[str, Any]:
    children = module.__dict__.get("_modules")  # a half-made one has none
    return {name: child for name, child in children.items() if child is not None} if isinstance(children, dict) else {}


def title(module: Any) -> str:
    """The script's own name for it, else the class of the model itself, whatever it is wrapped into."""
    given = watching.name_of(module)
    if given is not None:
        return given
    while type(module).__name__ in _WRAPPERS:
        child = next((c for name, c in _children(module).items() if name in _INNER), None)
        if child is None:
            break
        module = child
    given = watching.name_of(module)  # it may have been registered before it was wrapped
    if given is not None:
        return given
    kind = type(module)
    # Wrapped in place, it is of a new class, made of its own and the wrapper's.
    made = (
        base.__name__ for base in kind.__bases__ if kind.__name__ in (f"FSDP{base.__name__}", f"DDP{base.__name__}")
    )
    return next(made, kind.__name__)


def _walk(module: Any, path: str, above: Wrapped, seen: set[int]) -> Iterator[_Place]:
    if id(module) in seen:
        return
    seen.add(id(module))
    here = wrapped_by(module, above)
    for kind, table, said in (
        (Kind.PARAMETER, module.__dict__.get("_parameters") or {}, here.parameters),
        (Kind.BUFFER, module.__dict__.get("_buffers") or {}, here.buffers),
    ):
        for leaf, tensor in table.items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield _Place(path + leaf, kind, module, leaf, tensor, _placed(tensor, here, said))
    wrapper = type(module).__name__ in _WRAPPERS
    for name, child in _children(module).items():
        yield from _walk(child, path if wrapper and name in _INNER else f"{path}{name}.", here, seen)


def _placed_alike(found: list[_Place]) -> list[_Place]:
    placements = over_replicas([(place.tensor, place.placement) for place in found])
    return [place._replace(placement=placement) for place, placement in zip(found, placements, strict=True)]


def _placed(tensor: Any, here: Wrapped, said: Placement) -> Placement:
    if is_dtensor(tensor):
        return of_dtensor(tensor)
    if id(tensor) in here.unsynced:
        return here.parameters
    return PLAIN if id(tensor) in here.ignored else said


def is_dtensor(tensor: Any) -> bool:
    """Whether it is split or replicated over a mesh."""
    return type(tensor).__name__ == "DTensor" and hasattr(tensor, "_spec")


def _titled(
    titles: list[str], models: list[list[_Place]], owned: set[int], meant: set[int]
) -> Iterator[tuple[tuple[str, bool], list[_Place]]]:
    """Models of one class told apart by what they hold, and of twins the trained one from its copy.

    Two that cannot be told apart are left out: one rank could take them in another order than the next.
    """
    by_title: dict[tuple[str, int, bool], list[list[_Place]]] = {}
    for title, held_by in zip(titles, models, strict=True):
        if held_by:
            trained = any(id(place.tensor) in owned for place in held_by)
            by_title.setdefault((title, _outline(held_by), trained), []).append(held_by)
    outlines: dict[str, set[int]] = {}
    for title, outline, _ in by_title:
        outlines.setdefault(title, set()).add(outline)
    for (title, outline, trained), twins in by_title.items():
        copy = not trained and (title, outline, True) in by_title
        told = f"{title}#{outline:08x}" if len(outlines[title]) > 1 else title
        if len(twins) > 1:
            twins = [twin for twin in twins if any(id(place.tensor) in meant for place in twin)]
        if len(twins) == 1:
            yield (f"{told} (copy)" if copy else told, copy), twins[0]


def _outline(places: list[_Place]) -> int:
    text = "\n".join(f"{place.path} {tuple(place.tensor.shape)}" for place in places)
    return zlib.crc32(text.encode("utf-8", "replace"))


def _of_model(title: tuple[str, bool], places: list[_Place], owned: set[int]) -> Iterator[Found]:
    name, copy = title
    trained = any(id(place.tensor) in owned for place in places)
    for place in places:
        flags = (Flag.COPY if copy else 0) | (Flag.TRAINED_MODEL if trained else 0)
        flags |= Flag.TRAINABLE if place.tensor.requires_grad else 0
        flags |= Flag.OWNED if id(place.tensor) in owned else 0
        flags |= Flag.LOCAL if place.placement.local else 0
        unsaved = place.module.__dict__.get("_non_persistent_buffers_set") or ()
        flags |= Flag.TRANSIENT if place.kind == Kind.BUFFER and place.leaf in unsaved else 0
        yield Found(f"{name}.{place.path}", place.kind, place.module, place.leaf, place.placement, int(flags))
