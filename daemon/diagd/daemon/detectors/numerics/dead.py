"""Parameters that are meant to train and do not: in no optimizer, frozen, or without a gradient."""

from collections.abc import Callable, Iterator

import numpy as np

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.numerics.counted import COUNTS, LATER, SHARE, Counts, Dead
from diagd.daemon.detectors.numerics.rates import highest
from diagd.daemon.detectors.numerics.routers import unlearned
from diagd.daemon.detectors.numerics.weights import SOME, UPDATE, Weight, is_besides, is_expert, is_router, weights
from diagd.daemon.detectors.numerics.zeroed import zero
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.curves import curve_of, figure
from diagd.daemon.detectors.training.saying import cause, finding, seen

FEW = 1 / 3  # of those that an optimizer owns
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


def replaced(counts: Counts) -> Dead | None:
    """The optimizer holds what no module holds any more, and what has come in its place is in none."""
    idle, strangers, unowned = (counts.always(what) for what in ("strangers_idle", "strangers", "unowned"))
    if not idle or idle < max(counts.last("strangers", COUNTS)) or not unowned:
        return None
    owned = counts.last("owned")[-1]
    if owned and unowned > 2 * idle and not counts.always("unowned_behind"):
        return None  # of another model, which is there for its gradients alone
    names = counts.names("unowned")
    shown = ", ".join(names[:3])
    text = (
        f"the optimizer does not own {unowned:.0f} parameters of the model ({shown}): they have gradients and stand"
        f" still; in their place it owns {idle:.0f} tensors that no module holds any more and that have no gradient"
    )
    if not owned:
        text = f"no step updates the model: {text}"
    return Dead(
        "replaced", Severity.CRITICAL, text,
        "the optimizer was made before the model's parameters were replaced (a new head, a wrapper that flattens them)",
        (*names, "optimizer"), counts.since("unowned"), 0.95,
        (f"{unowned:.0f} parameters with a gradient in no optimizer, unchanged between two counts: {', '.join(names)}",
         f"{idle:.0f} of {strangers:.0f} tensors in the optimizer that are in no module have no gradient"),
    )  # fmt: skip


def copied(counts: Counts) -> Dead | None:
    """The optimizer holds one copy of the model, and another one is trained with."""
    fed, bare, owned = counts.always("copies_fed"), counts.always("bare"), counts.last("owned")
    if not fed or not owned or bare < owned[-1]:
        return None
    names = counts.names("without_gradient")
    text = (
        f"no step updates the model: the {bare:.0f} parameters in the optimizer have no gradient, and {fed:.0f} of"
        " another copy of the same model have one and are in no optimizer"
    )
    return Dead(
        "replaced", Severity.CRITICAL, text,
        "the optimizer was made with one copy of the model, and the forward pass goes through another (a deepcopy, a"
        " model that was built or loaded anew)",
        (*names, "optimizer"), counts.since("copies_fed"), 0.95,
        (f"{fed:.0f} parameters with a gradient in a copy in no optimizer, none of the {bare:.0f} in the owned one",),
    )  # fmt: skip


def unlisted(counts: Counts) -> Dead | None:
    """Parameters in a plain list or dictionary of the model: they take part, and nobody is given them.

    A network that is loaded and kept there on purpose, so that it does not train, is worth knowing at most.
    """
    found, news = counts.always("unlisted", COUNTS), counts.last("unlisted_fresh")
    if not found:
        return None
    names = counts.names("unlisted")
    text = (
        f"{found:.0f} parameters of the model lie in a plain list or dictionary ({', '.join(names[:3])}): they have"
        " gradients and stand still, no optimizer and no checkpoint has them"
    )
    return Dead(
        "unlisted", Severity.WARNING if news and news[-1] else Severity.INFO, text,
        "modules in a list or dictionary are no part of the model for torch: nn.ModuleList, nn.ModuleDict or"
        " nn.ParameterList makes them one",
        names, counts.since("unlisted"), 0.9,
        (f"{found:.0f} parameters with a gradient in no optimizer, unchanged between counts: {', '.join(names)}",),
    )  # fmt: skip


def forgotten(counts: Counts) -> Dead | None:
    """Parameters with gradients that are in no optimizer, behind others that are, or in one module with them.

    In front of all others they may be left as they are on purpose, where they are few that is worth knowing.
    """
    unowned, behind = counts.always("unowned", COUNTS + 1), counts.always("unowned_behind", COUNTS + 1)
    fed = min((a - b for a, b in zip(counts.last("strangers"), counts.last("strangers_idle"), strict=False)), default=0)
    if not unowned or fed:  # its own copies with gradients: master weights
        return None
    sure = behind or counts.always("unowned_beside", COUNTS + 1)
    if not sure and unowned > FEW * counts.last("owned")[-1]:
        return None
    names = counts.names("unowned")
    text = (
        f"{unowned:.0f} parameters have gradients and are in no optimizer: {', '.join(names[:3])} stand still while the"
        f" rest of the model trains"
    )
    return Dead(
        "forgotten", Severity.WARNING if sure else Severity.INFO, text,
        "the optimizer was not given all parameters that are to train",
        names, counts.since("unowned"), 0.85,
        (f"{unowned:.0f} parameters with a gradient in no optimizer, unchanged between counts: {', '.join(names)}",),
    )  # fmt: skip


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
    cut_off,
    zero,
    unlearned,
    unmoved,
)
