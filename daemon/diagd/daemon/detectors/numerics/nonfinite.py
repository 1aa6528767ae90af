"""NaN and infinities: which rank had them first, and where."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.numerics.runaway import ran_away
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.state.model import Frame
from diagd.daemon.state.signals import Series

_SOURCES = {
    "input": "it comes in with the data of the batch, at",
    "weight": "its weights hold them already, and those of other ranks do not:",
}
OWN = "gradients/own_nonfinite"  # of a rank's own pass, before the ranks' gradients are added up
LASTS = 2  # samples in a row, newest included: one alone is skipped by many scripts, and by gradient scalers


def nonfinite(scene: Scene) -> Iterator[Finding]:
    """The losses or the gradients have become NaN or infinite, and stay so."""
    signals = scene.state.signals
    losses = beginnings(scene, "loss")
    norms = beginnings(scene, "grad_norm")
    if not losses and not norms:
        return
    first_loss = min(losses.values(), default=1 << 62)
    first_norm = min(norms.values(), default=1 << 62)
    ranks = tuple(sorted(rank for rank, step in losses.items() if step == first_loss))
    # Weights that hold them have them from the step before, whose gradients may not have been looked at; but not where
    # others' loss is finite at that step: what an update brings, it brings to all.
    alone = any(_is_finite(scene, rank, first_loss) for rank in signals.ranks("loss"))
    if first_loss <= first_norm and (alone or _origin(scene, ranks[0], first_loss).operation != "weight"):
        yield _of_loss(scene, ranks, first_loss, losses)
    else:
        yield _of_gradient(scene, tuple(sorted(norms)) or ranks, min(first_norm, max(first_loss - 1, 1)))


def beginnings(scene: Scene, name: str) -> dict[int, int]:
    """By rank, the step at which the newest stretch of non-finite samples began."""
    found = {}
    for rank in scene.state.signals.ranks(name):
        series = scene.state.signals.series(rank, name)
        step = beginning(series) if series is not None else None
        if step is not None:
            found[rank] = step
    return found


def beginning(series: Series) -> int | None:
    """The first step of a stretch of non-finite samples that lasts to the end; None where there is none."""
    bad = ~np.isfinite(series.values)
    if len(bad) < LASTS or not bad[-LASTS:].all():
        return None
    good = np.flatnonzero(~bad)
    return int(series.steps[good[-1] + 1 if len(good) else 0])


def _of_loss(scene: Scene, ranks: tuple[int, ...], step: int, losses: dict[int, int]) -> Finding:
    value = _value(scene, ranks[0], "loss", step)
    others = [rank for rank in scene.state.signals.ranks("loss") if rank not in ranks]
    later = [rank for rank in others if rank in losses]
    operation, behind, why = _origin(scene, ranks[0], step)
    places = _places(scene, ranks[0], step)
    modules = [module for place in places for module in place.modules]
    names = dict.fromkeys((*behind, *modules, *_bad_gradients(scene, ranks[0], step)))
    text = f"the loss of {words.ranks_text(ranks)} is {value} from step {step} on"
    if others:
        text += ", before any other rank's" + (
            f": the gradients bring it to {words.ranks_text(later)}" if later else ""
        )
    told = [seen(f"loss {_value(scene, rank, 'loss', step)}", rank, step) for rank in ranks[:8]]
    told += [seen(f"loss {_value(scene, rank, 'loss', step)}", rank, step) for rank in others[:4]]
    if operation:
        where = f" {', '.join(behind[:3])}" if behind else ""
        by_operation = f"it {'is' if _only_seen(why) else 'comes from'} {why or operation}, behind"
        source = f"; {_SOURCES.get(operation, by_operation)}{where}"
        text += source if where else source.removesuffix(", behind").removesuffix(", at").removesuffix(":")
        told.append(seen(f"first seen in: {operation}{where}", ranks[0], step, "probe"))
    if modules:
        text += f", in {' or '.join(dict.fromkeys(modules))}"
    ran = ran_away(scene, ranks[0], step) if operation not in _SOURCES else None
    return finding(
        "numerics.nonfinite", Severity.CRITICAL, ranks, text,
        ran or _why(operation, why, places, told, _is_watched(scene, ranks[0])),
        names=("loss", *names), step=step, locations=tuple(Location(ranks[0], place.frame) for place in places),
    )  # fmt: skip


def _only_seen(why: str) -> bool:
    """Whether the operation is but the first that has kept one."""
    return why.startswith("first seen")


def _is_watched(scene: Scene, rank: int) -> bool:
    """Whether gradients are known, which were finite before: a log tells of the loss alone."""
    return scene.state.signals.series(rank, "grad_norm") is not None


def _why(operation: str, why: str, places: list["_Place"], told: list[Evidence], watched: bool) -> Cause:
    """What is known of how the first of them came to be."""
    if not operation and not watched:
        text = "where it comes from is not in what is known: a division by zero, a logarithm of zero, an overflow, such"
        return cause("loss", f"{text} data, or weights that hold it already", 0.4, *told)
    if operation == "input":
        text = "the batch holds such values already, or what is made of it before the first parameter comes in"
        return cause("data", text, 0.9, *told, basis=Basis.OBSERVATION)
    if operation == "weight":
        text = "a weight holds such values already: a step before, a load or the memory itself brought them"
        return cause("weight", text, 0.9, *told, basis=Basis.OBSERVATION)
    if _only_seen(why):
        text = f"{why}: made by it or by an operation before it that keeps nothing, or a row that is masked throughout"
        return cause("seen", text, 0.5, *told)
    if why and places and places[0].calls:
        alone = len(places) == 1
        told.append(seen(f"{operation} is called in {' and '.join(place.text for place in places)}", source="probe"))
        text = f"{why}, in {'the only line' if alone else 'one of the lines'} of the script's own code that computes it"
        return cause("operation", text, 0.9 if alone else 0.8, *told, basis=Basis.OBSERVATION)
    if why:
        return cause("operation", f"{why}: seen in the graph of the loss", 0.9, *told, basis=Basis.OBSERVATION)
    return cause(
        "loss", "the loss itself is computed from a division by zero, a logarithm of zero, an overflow, or such data",
        0.9, *told, basis=Basis.OBSERVATION,
    )  # fmt: skip


def _of_gradient(scene: Scene, ranks: tuple[int, ...], step: int) -> Finding:
    own = first_own(scene, ranks)
    others = tuple(rank for rank in ranks if own and rank not in own[0])
    ranks, step = own or (ranks, step)
    given = _bad_gradients(scene, ranks[0], step)
    names = given or _origin(scene, ranks[0], step + 1).names
    bad, all_ = (_last(scene, ranks[0], f"gradients/{what}") if given else None for what in ("nonfinite", "all"))
    which = f" in {', '.join(names[:3])}" if names else ""
    count = f" ({bad:.0f} of {all_:.0f} parameters)" if bad and all_ else ""
    text = f"gradients are NaN or infinite{which}{count} from step {step} on, while the losses were still finite"
    reduced = "; they were reduced over the ranks before they were seen, so not whose they were"
    whose = "" if len(ranks) < 2 or others else reduced
    if others:
        text += f"; those of {words.ranks_text(others)} were finite in that pass, before they were added up"
    told = [seen(f"gradient norm {_value(scene, rank, 'grad_norm', step)}", rank, step) for rank in ranks[:8]]
    partly = bad is not None and all_ is not None and bad < all_
    where = ": the backward pass is finite behind these parameters" if partly else ""
    why = cause("gradient", f"a derivative that is not finite where its value is (sqrt or norm at 0){where}{whose}",
                0.8, *told, basis=Basis.RESEARCH)  # fmt: skip
    why = ran_away(scene, ranks[0], step) or why
    return finding("numerics.nonfinite", Severity.CRITICAL, ranks, text, why, names=("grad", *names), step=step)


def first_own(scene: Scene, ranks: tuple[int, ...]) -> tuple[tuple[int, ...], int] | None:
    """The ranks whose own pass had the first of them, and its step; None where that is not known of all."""
    told = {r: s for r in ranks if (s := scene.state.signals.series(r, OWN)) is not None and len(s)}
    bad = {rank: int(one.steps[one.values > 0][0]) for rank, one in told.items() if (one.values > 0).any()}
    if len(told) < len(ranks) or not bad:
        return None
    step = min(bad.values())
    first = tuple(sorted(rank for rank, at in bad.items() if at == step))
    known = all((one.steps[one.values == 0] == step).any() for rank, one in told.items() if rank not in first)
    return (first, step) if known and len(first) < len(ranks) else None


class _Origin(NamedTuple):
    """The operation that made the first of them, the parameters behind it, and what it computed; empty if not known."""

    operation: str = ""
    names: tuple[str, ...] = ()
    why: str = ""


class _Place(NamedTuple):
    """A line of the script's own: one that calls the operation, or else the one that called backward."""

    frame: Frame
    modules: tuple[str, ...]
    calls: bool

    @property
    def text(self) -> str:
        return words.place_text(self.frame)


def _origin(scene: Scene, rank: int, step: int) -> _Origin:
    fact = scene.state.signals.fact(rank, "nonfinite/origin")
    if fact is None or fact[0] != step:
        return _Origin()
    operation, names, why = (*fact[1].split("\t"), "", "")[:3]
    return _Origin(operation, tuple(name for name in names.split(", ") if name), why)


def _places(scene: Scene, rank: int, step: int) -> list[_Place]:
    fact = scene.state.signals.fact(rank, "nonfinite/places")
    lines = [line.split("\t") for line in fact[1].splitlines()] if fact is not None and fact[0] == step else []
    return [
        _Place(Frame(function, file, int(line)), tuple(name for name in modules.split(", ") if name), what == "calls")
        for file, line, function, modules, what in lines
    ]


def _bad_gradients(scene: Scene, rank: int, until: int) -> tuple[str, ...]:
    """Of the first gradients that were seen not to be finite, some names; later than they were, all are."""
    fact = scene.state.signals.fact(rank, "gradients/nonfinite")
    return tuple(fact[1].split(", ")) if fact is not None and fact[0] <= until else ()


def _value(scene: Scene, rank: int, name: str, step: int) -> str:
    series = scene.state.signals.series(rank, name)
    values = series.values[series.steps == step] if series is not None else np.zeros(0)
    return f"{values[0]:.4g}" if len(values) else "not known"


def _is_finite(scene: Scene, rank: int, step: int) -> bool:
    series = scene.state.signals.series(rank, "loss")
    return series is not None and bool(np.isfinite(series.values[series.steps == step]).any())


def _last(scene: Scene, rank: int, name: str) -> float | None:
    series = scene.state.signals.series(rank, name)
    return float(series.values[-1]) if series is not None and len(series) else None
