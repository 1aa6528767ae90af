"""NaN and infinities: which rank had them first, and where."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Location, Severity
from diagd.daemon.detectors.numerics.began import Own, beginnings, first_own, last_finite
from diagd.daemon.detectors.numerics.runaway import ran_away
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.state.model import Frame

_SOURCES = {
    "input": "it comes in with the data of the batch, at",
    "made": "the data of the batch are finite, and what the model makes of them ahead of a parameter is not, at",
    "weight": "its weights hold them already, and those of other ranks do not:",
}
NEVER = 1 << 62  # a step
UNKNOWN = "not known"
UNSEEN = ", while the losses were still finite"


def nonfinite(scene: Scene) -> Iterator[Finding]:
    """The losses or the gradients have become NaN or infinite, and stay so."""
    signals = scene.state.signals
    losses = beginnings(scene, "loss")
    norms = beginnings(scene, "grad_norm")
    if not losses and not norms:
        return
    first_loss = min(losses.values(), default=NEVER)
    first_norm = min(norms.values(), default=NEVER)
    ranks = tuple(sorted(rank for rank, step in losses.items() if step == first_loss))
    everyone = tuple(sorted({*losses, *norms}))
    own = first_own(scene, everyone, last_finite(scene, first_loss), min(first_loss - 1, first_norm))
    # Weights that hold them have them from the step before, whose gradients may not have been looked at; but not where
    # others' loss is finite at that step: what an update brings, it brings to all.
    alone = any(_is_finite(scene, rank, first_loss) for rank in signals.ranks("loss"))
    in_forward = own is None and first_loss <= first_norm
    if in_forward and (alone or _origin(scene, ranks[0], first_loss).operation != "weight"):
        yield _of_loss(scene, ranks, first_loss, losses)
        return
    step = own.step if own is not None else min(first_norm, max(first_loss - 1, 1))
    yield _of_gradient(scene, tuple(sorted(norms)) or ranks, step, own)


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
        first = f"first seen in: {operation}{where}" if operation != "made" else "the model's input is finite"
        told.append(seen(first, ranks[0], step, "probe"))
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
    if operation == "made":
        text = "a division by 0, or a logarithm or a root of such a number, in what the model does before its first"
        text += " parameter comes in"
        if places and places[0].calls:
            told.append(seen(f"called there: {' and '.join(place.text for place in places)}", source="probe"))
        return cause("operation", text, 0.85, *told, basis=Basis.OBSERVATION)
    if operation == "weight":
        text = "a weight holds such values already: a step before, a load or the memory itself brought them"
        return cause("weight", text, 0.9, *told, basis=Basis.OBSERVATION)
    if _only_seen(why):
        by = "by an operation before it that keeps nothing"
        given = why.endswith("was given")
        by = (
            f"{by}, or it came in there with the data"
            if given
            else f"by it or {by}, or a row that is masked throughout"
        )
        text = f"{why}: made {by}"
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


def _of_gradient(scene: Scene, ranks: tuple[int, ...], step: int, own: Own | None) -> Finding:
    """A backward pass has made them; losses that have them from the next step on are its consequence."""
    others = own.finite if own is not None else ()
    ranks = own.ranks if own is not None and others else ranks
    given = _bad_gradients(scene, ranks[0], step)
    names = given or _origin(scene, ranks[0], step + 1).names
    bad, all_ = (_last(scene, ranks[0], f"gradients/{what}") if given else None for what in ("nonfinite", "all"))
    which = f" in {', '.join(names[:3])}" if names else ""
    count = f" ({bad:.0f} of {all_:.0f} parameters)" if bad and all_ else ""
    text = f"gradients are NaN or infinite{which}{count} from step {step} on"
    finite = _was_finite(scene, step)
    text += UNSEEN if finite else "; the loss of that step was not looked at"
    whose = ""
    if others:
        text += f"; those of {words.ranks_text(others)} were finite in that pass, before they were added up"
    elif len(ranks) > 1 and (own is None or own.ranks != ranks):
        whose = "; they were reduced over the ranks before they were seen, so not whose they were"
    partly = bad is not None and all_ is not None and bad < all_
    where = ": the backward pass is finite behind these parameters" if partly else ""
    made = "a derivative that is not finite where its value is (sqrt or norm at 0)"
    made += "" if finite else ", or a loss that was not finite itself"
    why = cause("gradient", f"{made}{where}{whose}", 0.8 if finite else 0.6, *_told(scene, ranks, step, own),
                basis=Basis.RESEARCH)  # fmt: skip
    if (in_log := _in_log(scene, ranks[0], step, list(_told(scene, ranks, step, own)))) is not None:
        text, why = text.replace(UNSEEN, in_log[0]), in_log[1]
    why = ran_away(scene, ranks[0], step) or why
    return finding("numerics.nonfinite", Severity.CRITICAL, ranks, text, why, names=("grad", *names), step=step)


def _in_log(scene: Scene, rank: int, step: int, told: list[Evidence]) -> tuple[str, Cause] | None:
    """What is said of the losses, and the cause, where a log is all that is known; None where it is not."""
    signals = scene.state.signals
    fact, losses = signals.fact(rank, "loaded"), signals.series(rank, "loss")
    if fact is None or fact[1] != UNKNOWN:
        return None
    # At the first of them it may be the mean of that loss and others before it.
    since = losses.values[losses.steps > step] if losses is not None else np.zeros(0)
    if len(since) and not since.any():
        text = "the loss itself was not finite, and the trainer logs 0 in its place (as transformers does with"
        text += " logging_nan_inf_filter)"
        zero = seen(f"loss exactly 0 at {len(since)} samples", rank, step)
        return ", and the loss that is logged is exactly 0 since", cause("loss", text, 0.7, *told, zero)
    derivative = "a derivative that is not finite where its value is (sqrt or norm at 0)"
    if "inf" in _value(scene, rank, "grad_norm", step):
        text = f"an overflow in the backward pass (half precision, gradients that grew too large), or {derivative}"
    else:
        text = f"{derivative}, an overflow, or a loss between two lines of the log that was not finite"
    return UNSEEN, cause("gradient", text, 0.5, *told)


def _told(scene: Scene, ranks: tuple[int, ...], step: int, own: Own | None) -> Iterator[Evidence]:
    """What was seen of such gradients, and of what came after them."""
    for rank in own.ranks[:8] if own is not None else ():
        yield seen("gradients of its own pass not finite, before they were added up", rank, step, "probe")
    for rank in own.finite[:4] if own is not None else ():
        yield seen("gradients of its own pass finite", rank, step, "probe")
    for rank in ranks[:8]:
        if (norm := _value(scene, rank, "grad_norm", step)) != UNKNOWN:
            yield seen(f"gradient norm {norm}", rank, step)
    losses = beginnings(scene, "loss")
    for after in sorted(set(losses.values()))[:2]:
        later = [rank for rank, since in losses.items() if since == after]
        yield seen(f"so the loss of {words.ranks_text(sorted(later))} is not finite from step {after} on", step=after)


def _was_finite(scene: Scene, step: int) -> bool:
    """Whether no loss of that step can have been what was not finite.

    Losses are not looked at in each step; but on the CPU the first that is not finite always is, and its graph too.
    """
    if last_finite(scene, NEVER) >= step:
        return True
    signals = scene.state.signals
    looked = [fact[0] for rank in signals.ranks("loss") if (fact := signals.fact(rank, "nonfinite/origin")) is not None]
    return min(looked, default=0) > step


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
    values = np.concatenate([values[~np.isfinite(values)], values])  # of several, that which is spoken of
    return f"{values[0]:.4g}" if len(values) else UNKNOWN


def _is_finite(scene: Scene, rank: int, step: int) -> bool:
    series = scene.state.signals.series(rank, "loss")
    return series is not None and bool(np.isfinite(series.values[series.steps == step]).any())


def _last(scene: Scene, rank: int, name: str) -> float | None:
    series = scene.state.signals.series(rank, name)
    return float(series.values[-1]) if series is not None and len(series) else None
