"""Which parameters train: counted now and then, right before a step, over all models and optimizers of this process.

The counts go out as signals `parameters/<what>`, some names of what was counted as facts of the same name; and as the
fact `dtypes/frozen`, in the form of `dtypes/changed`, frozen parameters that were cast in the midst of training.
"""

import math
from typing import Any

from diagd.probes import bits, counters, dtypes, fresh, later, spoilt, standing, unlisted
from diagd.probes.losses import LOSSES
from diagd.probes.named import NAMED, Parameter
from diagd.probes.sentinel import SENTINEL
from diagd.probes.signals import SIGNALS

EARLY = 8  # steps between two counts at first
LATE = 64  # and once so many steps are over
SHOWN = 8  # names
MOVED_OF = 16  # unowned parameters whose movement is watched
ELEMENTS = 32  # of each


class _Census:
    """What has been seen so far."""

    def __init__(self) -> None:
        self.told_fresh = False
        self.nonfinite = False
        self.bare = False  # at the last count no parameter had a gradient: the next one comes soon
        self.with_gradient: set[str] = set()  # names that have had a gradient
        self.nonzero: set[str] = set()  # and one that was not zero
        self.held: dict[str, Any] = {}  # what some elements of unowned parameters held
        self.silent: dict[str, Any] = {}  # likewise of owned ones without a gradient
        self.dtypes: dict[str, Any] = {}  # of frozen parameters


CENSUS = _Census()


def due(step: int) -> bool:
    """Whether the parameters are counted at this step."""
    return step % (EARLY if step <= LATE or CENSUS.bare else LATE) == 0 or step == 2


def gradients(names: list[str | None], norms: list[float]) -> None:
    """These had gradients of these norms."""
    nonzero = {name for name, norm in zip(names, norms, strict=False) if name is not None and norm != 0.0}
    CENSUS.nonzero |= nonzero
    CENSUS.with_gradient |= nonzero
    if len(nonzero) < len(names):
        CENSUS.with_gradient.update(name for name in names if name is not None)


def not_finite(names: list[str | None], norms: list[float], step: int) -> None:
    """For the first time some gradients are not finite: say which."""
    SENTINEL.tell()
    if CENSUS.nonfinite:
        return
    CENSUS.nonfinite = True
    bad = [name or "?" for name, norm in zip(names, norms, strict=False) if not math.isfinite(norm)]
    SIGNALS.record("gradients/nonfinite", float(len(bad)), step)
    SIGNALS.record("gradients/all", float(len(norms)), step)
    SIGNALS.fact("gradients/nonfinite", ", ".join(bad[:SHOWN]), step)


def take(step: int) -> None:
    """An optimizer is about to step in a training step that counts."""
    if NAMED.parameters:
        SENTINEL.place()
        owned = _owned_by_all()
        _count(owned, step)
        spoilt.look(step)
        counters.look(step)
        standing.look(step)
        unlisted.look(owned, step)
        if not CENSUS.told_fresh and step > 2:
            CENSUS.told_fresh = True
            fresh.tell(owned, step)


def _owned_by_all() -> set[int]:
    from diagd.probes.norms import NORMS

    there = [one.ref() for one in NORMS.optimizers.values()]
    return {id(p) for each in there if each is not None for group in each.param_groups for p in group["params"]}


def _count(owned: set[int], step: int) -> None:
    held = [(one, p) for one, p in NAMED.held() if _elements(p)]  # of a split one, a rank may have no part
    _look_for_casts([(one, p) for one, p in held if not (p.requires_grad or id(p) in owned)], step)
    trainable = [(one, p) for one, p in held if p.requires_grad]
    unowned = [(one, p) for one, p in trainable if not (one.owned or id(p) in owned) and p.grad is not None]
    mine = [(one, p) for one, p in held if id(p) in owned and p.requires_grad]
    silent = _standing([(one, p) for one, p in mine if one.name not in CENSUS.with_gradient and p.grad is None])
    still = [(one, p) for one, p in mine if one.name in CENSUS.with_gradient and one.name not in CENSUS.nonzero]
    bare = sum(p.grad is None for _, p in mine)
    CENSUS.bare = bool(mine) and bare == len(mine)
    strangers = [p for place in NAMED.strangers if (p := place.tensor()) is not None and id(p) in owned]
    idle = sum(p.grad is None for p in strangers)
    _say("owned", [one for one, _ in mine], step)
    _say("without_gradient", [one for one, _ in silent], step)
    _say("zero_gradient", [one for one, _ in still], step)
    _say("unowned", _unmoved(unowned), step)
    _number("unowned_behind", _behind(unowned, owned, held), step)
    _number("unowned_beside", _beside(unowned, mine), step)
    _number("elements_without_gradient", _share(silent, mine), step)
    _number("elements_zero_gradient", _share(still, mine), step)
    LOSSES.bare = CENSUS.bare
    _number("bare", bare, step)
    _number("cleared", CENSUS.bare and LOSSES.given > max(step - EARLY, 0), step)
    if still:
        bits.tell([p for _, p in mine], step)
    _number("copies_fed", sum(p.grad is not None for one in NAMED.copies if (p := one.tensor()) is not None), step)
    _number("strangers", len(strangers), step)
    _number("strangers_idle", idle, step)
    _number("matrices", sum(p.dim() > 1 for _, p in mine), step)
    _number("elements_trainable", _share(mine, [(one, p) for one, p in held if one.trained]), step)


def _number(what: str, value: float, step: int) -> None:
    SIGNALS.record(f"parameters/{what}", float(value), step)


def _say(what: str, found: list[Parameter], step: int) -> None:
    _number(what, len(found), step)
    if found and what != "owned":
        SIGNALS.fact(f"parameters/{what}", ", ".join(one.name for one in found[:SHOWN]), step)


def _share(some: list[tuple[Parameter, Any]], all_: list[tuple[Parameter, Any]]) -> float:
    return float(sum(p.numel() for _, p in some) / max(sum(p.numel() for _, p in all_), 1))


def _elements(parameter: Any) -> int:
    """How many of its elements this rank holds."""
    part = getattr(parameter, "_local_tensor", parameter)  # a DTensor's
    return part.numel()  # type: ignore[no-any-return]


def _behind(unowned: list[tuple[Parameter, Any]], owned: set[int], held: list[tuple[Parameter, Any]]) -> int:
    """How many of them come behind an owned one in their model: what is owned is then no head on top of them."""
    first: dict[int, int] = {}
    for place, (one, p) in enumerate(held):
        if id(p) in owned:
            first.setdefault(one.model, place)
    places = {id(p): place for place, (_, p) in enumerate(held)}
    return sum(one.model in first and places[id(p)] > first[one.model] for one, p in unowned)


def _beside(unowned: list[tuple[Parameter, Any]], mine: list[tuple[Parameter, Any]]) -> int:
    """How many of them are in a module of which other parameters are owned: nobody means to train a half of one."""
    modules = {id(one.module()) for one, _ in mine}
    return sum(id(one.module()) in modules for one, _ in unowned)


def _unmoved(unowned: list[tuple[Parameter, Any]]) -> list[Parameter]:
    """Those that hold what they held at the last count, as far as can be seen without waiting for a device."""
    before, CENSUS.held = CENSUS.held, {}
    found = []
    for one, parameter in unowned:
        some = _some(parameter) if len(CENSUS.held) < MOVED_OF else None
        if some is not None:
            CENSUS.held[one.name] = some
        known = before.get(one.name)
        if (some is None and one.name not in before) or (known is not None and known == some):
            found.append(one)
    return found


def _look_for_casts(frozen: list[tuple[Parameter, Any]], step: int) -> None:
    """Frozen parameters of another dtype than at the last count; of those that train, their optimizer's look tells."""
    before, CENSUS.dtypes = CENSUS.dtypes, {one.name: p.dtype for one, p in frozen}
    cast = [(name, before[name], dtype) for name, dtype in CENSUS.dtypes.items() if before.get(name, dtype) != dtype]
    if cast:
        _, old, new = cast[0]
        names = [name for name, was, is_now in cast if (was, is_now) == (old, new)]
        dtypes.tell("dtypes/frozen", old, new, names, step)


def _standing(silent: list[tuple[Parameter, Any]]) -> list[tuple[Parameter, Any]]:
    """Those without a gradient that do not move all the same, as evolution strategies move them.

    Of some it is seen; where these all move, the others do, too.
    """
    before, CENSUS.silent = CENSUS.silent, {}
    for one, parameter in silent[:MOVED_OF]:
        if (some := _some(parameter)) is not None:
            CENSUS.silent[one.name] = some
    moved = {name for name, held in CENSUS.silent.items() if before.get(name, held) != held}
    if moved and len(moved) == len(CENSUS.silent):
        return []
    return [(one, p) for one, p in silent if one.name not in moved]


def _some(parameter: Any) -> list[float] | None:
    tensor = later.plain(parameter)
    if tensor is None or tensor.device.type != "cpu" or not tensor.is_contiguous():
        return None
    return tensor.detach().reshape(-1)[:ELEMENTS].tolist()  # type: ignore[no-any-return]
