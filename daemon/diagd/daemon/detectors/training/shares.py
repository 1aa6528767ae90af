"""How a model's parameters are spread: a table of embeddings that is nearly all of it."""

from collections.abc import Iterator
from math import prod

from diagd.daemon.detectors.finding import Basis, Finding, Severity
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.training.run import words_of
from diagd.daemon.detectors.training.saying import cause, finding, seen
from diagd.daemon.state.tensors import TensorInfo

MOST = 0.7  # of the trained parameters
LEAST = 100_000  # parameters: below it there is nothing to spread
DENSE, SEVERAL = 0.9, 4  # of the trained parameters, in one of so many matrices
STEPS = 3  # all models are there by then
LATER = 128  # and what there is to say of how they train comes first
TABLES = 8  # more of them are features with a table each, which is how such models are made
_EMBEDDING = frozenset({
    "embed", "embedding", "embeddings", "embedder", "wte", "emb", "tok", "vocab", "lookup",
})  # fmt: skip


def parameter_share(scene: Scene) -> Iterator[Finding]:
    """Of what one rank holds and trains; tied tensors are in the ledger once."""
    state = scene.state
    ranks = tuple(state.ranks())
    step = scene.step(ranks) or 0 if ranks else 0
    if step < STEPS:
        return
    first = state.tensors.first_step
    began = step if first is None else first  # it has been so since then, whenever it is told
    for model, tensors in _models(scene, ranks[0]).items():
        whole = sum(prod(info.shape) for info in tensors)
        tables = [info for info in tensors if _is_table(info)]
        held = sum(prod(info.shape) for info in tables)
        if whole >= LEAST and held > MOST * whole and len(tables) <= TABLES:
            yield _finding(ranks, model, tables, held, whole, began)
        elif whole >= LEAST and step >= LATER and (one := _dense(tensors, whole)) is not None:
            yield _dense_finding(ranks, model, one, whole, began)


def _models(scene: Scene, rank: int) -> dict[str, list[TensorInfo]]:
    found: dict[str, list[TensorInfo]] = {}
    for entry in scene.state.tensors.entries:
        info = entry.infos.get(rank)
        if entry.kind == "parameter" and info is not None and info.trainable and info.trained_model and not info.copy:
            found.setdefault(info.name.partition(".")[0], []).append(info)
    return found


def _is_table(info: TensorInfo) -> bool:
    """Whether it is a matrix that a module for embeddings holds, by the names on its path."""
    path = info.name.split(".")
    holder = path[-2:] if path[-1] == "weight" else path[-1:]
    wide = len(info.shape) == 2 and info.shape[0] > 4 * info.shape[1]
    return wide and any(_EMBEDDING & set(words_of(part)) for part in holder)


def _dense(tensors: list[TensorInfo], whole: int) -> TensorInfo | None:
    """The one matrix of several that holds nearly all; no table."""
    matrices = [info for info in tensors if len(info.shape) > 1]
    largest = max(matrices, key=lambda info: prod(info.shape), default=None)
    if largest is None or len(matrices) < SEVERAL or _is_table(largest):
        return None
    return largest if prod(largest.shape) > DENSE * whole else None


def _dense_finding(ranks: tuple[int, ...], model: str, one: TensorInfo, whole: int, step: int) -> Finding:
    held = prod(one.shape)
    text = (
        f"{one.name} {list(one.shape)} alone holds {held / whole:.0%} of the {whole:,} parameters that are trained, as"
        " a dense layer on a flattened map does, or a full tensor for each of some kinds"
    )
    why = cause("dense", "it connects everything with everything where the rest of the model is small", 0.7,
                seen(f"{held:,} of {whole:,} parameters of {model}", ranks[0], source="ledger"),
                basis=Basis.RESEARCH)  # fmt: skip
    return finding("training.parameter_share", Severity.INFO, ranks, text, why, names=(one.name, "dense"), step=step,
                   key=model)  # fmt: skip


def _finding(ranks: tuple[int, ...], model: str, tables: list[TensorInfo], held: int, whole: int, step: int) -> Finding:
    largest = max(tables, key=lambda info: prod(info.shape))
    text = (
        f"{largest.name} {list(largest.shape)} {'and others hold' if len(tables) > 1 else 'holds'} {held / whole:.0%}"
        f" of the {whole:,} parameters that are trained: little is left for what computes with it"
    )
    why = cause("table", "the vocabulary is large for the width and depth of the rest", 0.8,
                seen(f"{held:,} of {whole:,} parameters of {model}, tied ones counted once", ranks[0], source="ledger"),
                basis=Basis.RESEARCH)  # fmt: skip
    return finding("training.parameter_share", Severity.INFO, ranks, text, why,
                   names=tuple(info.name for info in tables), step=step, key=model)  # fmt: skip
