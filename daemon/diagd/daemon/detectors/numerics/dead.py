"""Parameters that are meant to train and do not: in no optimizer, frozen, or without a gradient."""

from collections.abc import Callable, Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.numerics.counted import LATER, SHARE, Counts, Dead
from diagd.daemon.detectors.numerics.not_owned import copied, forgotten, replaced, unlisted
from diagd.daemon.detectors.numerics.rates import highest
from diagd.daemon.detectors.numerics.routers import unlearned
from diagd.daemon.detectors.numerics.unused import unused
from diagd.daemon.detectors.numerics.weights import SOME, UPDATE, Weight, is_besides, is_expert, is_router, weights
from diagd.daemon.detectors.numerics.zeroed import zero
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import curve_of, figure
from diagd.daemon.detectors.training.saying import cause, finding, seen

MANY = 0.5  # of the parameters, however small they are
MOVED_SAMPLES = 4
STILL_SHARE = 0.25
FADED = 1e-6  # of the largest gradient that it had: what is learned stands still, too


def dead(scene: Scene) -> Iterator[Finding]:
    """One finding for each way, for all ranks that show it."""
    found: dict[str, dict[int, Dead]] = {}
    ranks = scene.state.signals.ranks("parameters/owned")
    for rank in ranks:
        for rule in _RULES:
            one = rule(Counts(scene, rank))
            if one is not None:
                found.setdefault(one.key, {})[rank] = one
                break
    for by_rank in found.values():
        yield _finding(by_rank)


def _finding(by_rank: dict[int, Dead]) -> Finding:
    ranks = tuple(sorted(by_rank))
    one = by_rank[ranks[0]]
    told = [seen(fact, ranks[0], one.step, "probe") for fact in one.facts]
    why = cause(one.key, one.why, one.confidence, *told, basis=Basis.OBSERVATION)
    text = f"{one.text} ({words.ranks_text(ranks)})" if len(ranks) > 1 else one.text
    return finding(one.kind, one.severity, ranks, text, why, names=one.names, step=one.step,
                   key=f"dead {one.key}")  # fmt: skip


def frozen_output(counts: Counts) -> Dead | None:
    """The layer that gives the output is frozen with the random numbers that it was made with, and no matrix trains."""
    if not counts.last("random_output") or not counts.last("owned") or not counts.last("owned")[-1]:
        return None
    names = counts.names("random_output")
    none = counts.last("matrices")[-1] == 0
    if not none and (any(is_besides(name) for name in _trained(counts)) or not _learns_nothing(counts)):
        return None
    share = counts.last("elements_trainable")[-1]
    what = "only biases and the scales of normalizations train" if none else f"only {share:.1%} of the parameters train"
    frozen = _frozen(counts)
    text = (
        f"{names[0]}, which gives the output, is frozen with the random numbers that it was made with, and {what}:"
        f" {len(frozen)} parameters are frozen"
    )
    return Dead(
        "frozen", Severity.WARNING, text,
        "more was frozen than was meant (requires_grad = False): the output layer is new and has to train",
        (*names, *(n for n in frozen if n not in names))[:20], counts.since("random_output"), 0.75,
        (f"{names[0]} does not require a gradient, and its values are those of a new layer",
         f"{share:.1%} of the elements train"),
    )  # fmt: skip


def _trained(counts: Counts) -> list[str]:
    return [one.name for one in weights(counts.scene.state, counts.rank)]


def _frozen(counts: Counts) -> list[str]:
    entries = counts.scene.state.tensors.entries
    mine = [(e.name, e.infos[counts.rank]) for e in entries if e.kind == "parameter" and counts.rank in e.infos]
    return [name for name, info in mine if info.trained_model and not info.trainable and not info.owned]


def _learns_nothing(counts: Counts) -> bool:
    """Whether the loss has hardly fallen so far."""
    values = curve_of(counts.scene.state.signals.series(counts.rank, "loss")).values
    if len(values) < 60:
        return False
    first, last = float(np.median(values[:5])), float(np.median(values[-20:]))
    return last > 0.9 * first > 0


def cut_off(counts: Counts) -> Dead | None:
    """A good part of what is to train has never had a gradient."""
    silent, share = counts.always("without_gradient", LATER), counts.always("elements_without_gradient", LATER)
    names = counts.names("without_gradient")
    owned = counts.last("owned")
    if silent and (routers := [name for name in names if is_router(name)]) and _routes(counts):
        return _unrouted(counts, routers)
    if silent and silent == owned[-1] and counts.always("cleared", LATER):
        return _cleared(counts, names)
    if not silent or (share < SHARE and silent < MANY * owned[-1]) or (names and all(map(is_expert, names))):
        return None
    text = (
        f"{silent:.0f} parameters ({share:.0%} of what is to train) have never had a gradient: {', '.join(names[:3])}"
    )
    return Dead(
        "cut off", Severity.WARNING, text,
        "nothing of the loss depends on them: detached, computed without gradients, or not used",
        names, counts.since("without_gradient"), 0.85,
        (f"{silent:.0f} parameters in the optimizer without a gradient: {', '.join(names)}",),
    )  # fmt: skip


def _cleared(counts: Counts, names: tuple[str, ...]) -> Dead:
    text = (
        f"the gradients that the backward pass leaves are gone when the optimizer steps: none of its"
        f" {counts.last('owned')[-1]:.0f} parameters is ever updated"
    )
    facts = (
        "parameters have gradients after the backward pass",
        "none of the optimizer's parameters has a gradient when it steps",
    )
    return Dead(
        "cleared", Severity.CRITICAL, text, "zero_grad() is called between backward() and step()",
        ("zero_grad", *names), counts.since("without_gradient"), 0.95, facts, "training.gradient_accumulation",
    )  # fmt: skip


def _routes(counts: Counts) -> bool:
    """Whether what it chooses of trains."""
    return any(is_expert(name) and not is_router(name) for name in _trained(counts))


def _unrouted(counts: Counts, routers: list[str]) -> Dead:
    text = f"{', '.join(routers[:3])} {'has' if len(routers) == 1 else 'have'} never had a gradient, and the experts"
    return Dead(
        "unrouted", Severity.WARNING, f"{text} that it chooses of train: which one gets a token is never learned",
        "the choice (argmax, topk) passes on no gradient, and the experts' outputs are not weighted with what it was"
        " made of",
        tuple(routers), counts.since("without_gradient"), 0.85,
        (f"parameters in the optimizer without a gradient: {', '.join(routers)}",),
    )  # fmt: skip


def unmoved(counts: Counts) -> Dead | None:
    """Matrices that have gradients and that no step changes, in a precision that could show it."""
    if counts.rank not in counts.scene.state.signals.ranks("parameters/owned")[:SOME]:
        return None
    rates = highest(counts.scene.state, counts.rank).values
    if len(rates) and not rates[-1]:
        return None  # that is said of the rates
    all_ = [w for w in weights(counts.scene.state, counts.rank) if w.is_matrix]
    still = [
        w for w in all_
        if w.newest(UPDATE) == 0.0 and len(w.update.values) >= MOVED_SAMPLES
        and not w.update.values[-MOVED_SAMPLES:].any() and _is_fed(w)
        and (w.info is None or w.info.dtype in ("float32", "float64"))
    ]  # fmt: skip
    if not still or len(still) < STILL_SHARE * len(all_) or len(still) == len(all_):
        return None
    names = tuple(w.name for w in still)
    text = f"{len(still)} of {len(all_)} weights have gradients and do not move: {', '.join(names[:3])}"
    first = still[0]
    return Dead(
        "unmoved", Severity.WARNING, text,
        "what the optimizer adds to them is undone or too small to count", names[:20],
        int(first.update.steps[-MOVED_SAMPLES]), 0.8,
        tuple(f"{w.name}: gradient {figure(float(w.gradient.values[-1]))}, changed by 0 in {MOVED_SAMPLES} steps"
              for w in still[:3]),
    )  # fmt: skip


def _is_fed(weight: Weight) -> bool:
    """Whether it has gradients still, of a size as it had them."""
    values = weight.gradient.values
    return len(values) > 0 and bool(values[-3:].min() > FADED * values.max())


_RULES: tuple[Callable[[Counts], Dead | None], ...] = (
    replaced,
    copied,
    unlisted,
    forgotten,
    frozen_output,
    unused,
    cut_off,
    zero,
    unlearned,
    unmoved,
)
