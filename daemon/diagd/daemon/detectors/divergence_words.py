"""Why tensors have parted, and what the run goes on with, in words."""

from diagd.daemon.detectors.differing import How

_WHY = {
    How.LOADED: "they were made equal when the model was wrapped, and differed before the first step: some ranks have"
    " loaded or changed theirs in between",
    How.NEVER: "they differ from the start, and nothing has made them equal",
    How.UNREDUCED: "they were equal before the first step and have parted with the first updates: what the ranks add to"
    " them is not reduced over the ranks",
    How.UPDATED: "they were equal before the first step and have parted with the first updates, though their gradients"
    " were equal when the optimizer stepped: what it makes of them differs, or something else writes to them",
    How.UNSENT: "each is in the optimizer of one rank alone, as all weights of this model are, and what that rank makes"
    " of it does not reach the others, as other weights do",
    How.UNOWNED: "the optimizers of some ranks were not given them and leave them as they are, where those of the"
    " others step them",
    How.CHANGED: "they were equal and then were not: a rank's memory has changed otherwise than by the steps that all"
    " have made",
}
EFFECT = {
    "divergence.gradient": "with ranks that do not train the same model",
    "divergence.optimizer": "with updates that differ between ranks",
    "divergence.parameter": "with ranks that do not train the same model",
    "divergence.frozen": "with ranks that do not train with the same frozen weights",
    "divergence.buffer": "with ranks that evaluate and save something else",
}
_WHY_OF = {
    (
        "divergence.parameter",
        How.CHANGED,
    ): "they were equal and then were not: a rank's memory has changed otherwise than by the steps that all have made,"
    " by a write or by a step with other gradients",
    (
        "divergence.gradient",
        How.UNREDUCED,
    ): "what each rank adds to them is of its own data alone: it is not reduced over the ranks",
    (
        "divergence.gradient",
        How.MIXED,
    ): "some ranks have the same and others do not, from the start: they are reduced, but over a part of the ranks, or"
    " not in the same order of tensors on all of them",
    ("divergence.gradient", How.STOPPED): "they were reduced over the ranks, and from some step on no longer are",
    (
        "divergence.gradient",
        How.LOST,
    ): "they are reduced over the ranks, but now and then something else arrives on"
    " some ranks: a payload was lost or damaged on the way, or changed after it came",
    (
        "divergence.gradient",
        How.CLIPPED,
    ): "they are the same but for a factor: each rank has clipped or scaled them by a norm of its own",
    ("divergence.buffer", How.NEVER): "each rank updates its own, from its own data, and its wrapper does not broadcast"
    " them",
    (
        "divergence.optimizer",
        How.LOADED,
    ): "the optimizers of the ranks have counted different numbers of steps: some have"
    " loaded their state, or lost it, and others have not",
}


def why(kind: str, how: How) -> str:
    """How tensors of this kind came apart; empty where nothing is known of it."""
    return _WHY_OF.get((kind, how), _WHY.get(how, ""))
