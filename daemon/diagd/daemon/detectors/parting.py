"""What to make of a tensor that is not the same on all ranks: whether it should be, and how it came to differ."""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from enum import StrEnum

from diagd.daemon.detectors import words
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.meetings import in_bursts, together_until
from diagd.daemon.detectors.models import Models, info_of, model_of
from diagd.daemon.detectors.numerics.weights import is_expert
from diagd.daemon.detectors.replicas import communicates
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import NONE, Entry
from diagd.daemon.state.tensors import TensorInfo

SEEN_TWICE = 2  # comparisons in a row: one could have met a tensor in the middle of being changed
EARLY_STEP = 2  # what parts by then has parted with the first updates
FEW = 0.5  # of a model's tensors: a change of more of them is something that the script does


class How(StrEnum):
    """How ranks came to differ; the catalog's fixes go by these names."""

    LOADED = "loaded"  # made equal by their wrapper, and different before the first step
    NEVER = "never"  # different from the start, and nothing has made them equal
    UNREDUCED = "unreduced"  # equal until the first updates
    UPDATED = "updated"  # equal until the first updates, and these were made from equal gradients
    CHANGED = "changed"  # equal for a while, then not
    # Of gradients:
    CLIPPED = "clipped"  # one is the other times a factor
    STOPPED = "stopped"  # reduced for a while, then no longer
    LOST = "lost"  # reduced, and something else on some rank now and then


@dataclass(frozen=True, slots=True)
class Parted:
    """A tensor that should be the same and is not."""

    entry: Entry
    kind: str
    how: How
    sure: bool  # a wrapper or mesh says that the ranks must agree
    since: int  # the first step after which it was seen to differ; 0 before the first
    classes: list[list[int]]  # ranks by equal content, the largest class first
    said: str = ""  # what else speaks for it
    odd: tuple[int, ...] = ()  # the culprits, where more than their number tells them
    aside: bool = False  # worth knowing: nothing says that it should be the same, and often it need not be

    @property
    def info(self) -> TensorInfo:
        """The tensor, as the first of its ranks has it."""
        return info_of(self.entry)

    @property
    def minority(self) -> tuple[int, ...]:
        """The ranks outside the largest class; all of them on a tie."""
        return minority(self.classes)[0]

    @property
    def culprits(self) -> tuple[int, ...]:
        """The odd ones."""
        return self.odd or self.minority

    @property
    def is_tie(self) -> bool:
        """Whether no side is in the majority, and nothing else tells them apart."""
        return not self.odd and minority(self.classes)[1]


def parted_now(entry: Entry, kind: str, how: How, sure: bool) -> Parted:
    """A tensor that differs at this time."""
    return Parted(entry, kind, how, sure, entry.agreement.first_unequal, entry.agreement.classes)


def parted(state: JobState) -> list[Parted]:
    """All such tensors, in the order in which they parted."""
    given = {(e.name, e.peers): e for e in state.tensors.entries if e.kind == "gradient" and e.agreement.parts}
    beside = _proven(state)
    return _all_judged(state, lambda entry: _is_seen(entry, given) or _is_with(entry, beside, state.tensors.asked))


def suspected(state: JobState) -> list[Parted]:
    """Those, and such as would be among them were they found to differ once more: replicas by their wrapper or mesh.

    Of what nothing declares to be equal a single comparison says too little to look closer.
    """
    if not any(entry.agreement.unequal for entry in state.tensors.entries):
        return []
    found = {(one.entry.kind, one.entry.name, one.entry.peers): one for one in parted(state)}
    for one in _all_judged(state, lambda entry: entry.agreement.unequal == 1 and bool(entry.peers)):
        if one.sure:
            found.setdefault((one.entry.kind, one.entry.name, one.entry.peers), one)
    return sorted(found.values(), key=lambda one: one.since)


def _all_judged(state: JobState, is_meant: Callable[[Entry], bool]) -> list[Parted]:
    models = Models(state)
    meant = (_judged(state, entry, models) for entry in state.tensors.entries if is_meant(entry))
    return sorted((one for one in meant if one is not None), key=lambda one: one.since)


def _proven(state: JobState) -> list[tuple[tuple[int, ...], list[list[int]]]]:
    """Between which ranks tensors were found to differ more than once, and how these ranks are parted."""
    return [(e.peers, e.agreement.classes) for e in state.tensors.entries if e.agreement.unequal >= SEEN_TWICE]


def _is_with(entry: Entry, beside: list[tuple[tuple[int, ...], list[list[int]]]], asked: Container[int]) -> bool:
    """Whether it differed between the same ranks as others that do for longer, when all were looked at at once."""
    seen = entry.agreement
    return seen.unequal == 1 and seen.first_unequal in asked and (entry.peers, seen.classes) in beside


def _is_seen(entry: Entry, given: dict[tuple[str, tuple[int, ...]], Entry]) -> bool:
    """Whether it was found to differ twice, or once and its gradient between the same ranks since it was equal."""
    seen = entry.agreement
    if seen.unequal != 1 or entry.kind != "parameter":
        return seen.unequal >= SEEN_TWICE
    gradient = given.get((entry.name, entry.peers))
    parts = gradient.agreement.parts if gradient is not None else ()
    return any(step > seen.last_equal and classes == seen.classes for step, classes in parts)


def at_one_step(state: JobState, one: Parted) -> bool:
    """Whether the ranks were side by side when it parted, as far as that is known: else it is not one moment's."""
    if one.how not in (How.CHANGED, How.LOST):
        return True
    until = together_until(state, sorted(rank for alike in one.classes for rank in alike))
    return until is None or until >= one.since


def _judged(state: JobState, entry: Entry, models: Models) -> Parted | None:
    info = info_of(entry)
    how = _how(entry, bool(entry.peers))
    if entry.kind == "gradient":
        return None  # by itself: what it does to the weights tells (origins.py)
    if entry.kind == "state":
        return _of_optimizer(state, entry, models.of(entry))
    if entry.kind == "buffer":
        one = parted_now(entry, "divergence.buffer", how, sure=False)
        return one if entry.peers else replace(one, aside=True) if _counts_what_it_sees(entry, models) else None
    frozen = not (info.owned or info.trainable)
    kind = "divergence.frozen" if frozen else "divergence.parameter"
    if entry.peers:
        return parted_now(entry, kind, how, sure=True)
    judge = _owned if info.owned else _left_alone
    return parted_now(entry, kind, how, sure=False) if judge(state, entry, how, models) else None


def _counts_what_it_sees(entry: Entry, models: Models) -> bool:
    """Whether a buffer that no wrapper knows is a statistic of replicas, each of its own samples."""
    floats = all(info.dtype.startswith(("float", "bfloat")) and not info.local for info in entry.infos.values())
    return floats and set(entry.infos) in models.replicas


def _of_optimizer(state: JobState, entry: Entry, siblings: list[Entry]) -> Parted | None:
    """State that differs by itself: its parameter was equal when it already did, or the steps were counted otherwise.

    Where both part together, what went into them did: the gradients.
    """
    if not entry.peers:
        return None
    if is_expert(entry.name):
        return None  # one that no sample goes to is not stepped
    counters = [s for s in siblings if s.kind == "state" and s.name.endswith(".step") and s.peers == entry.peers]
    if any(counter.agreement.unequal >= SEEN_TWICE for counter in counters):
        return _not_loaded(state, parted_now(entry, "divergence.optimizer", How.LOADED, sure=True))
    name = entry.name.rpartition(".")[0]
    owner = next((s for s in siblings if (s.kind, s.name, s.peers) == ("parameter", name, entry.peers)), None)
    if owner is not None and owner.agreement.last_equal >= entry.agreement.first_unequal:
        return parted_now(entry, "divergence.optimizer", How.CHANGED, sure=True)
    return None


def _not_loaded(state: JobState, one: Parted) -> Parted:
    """The same; where the ranks on one side have loaded an optimizer's state and the others have not, that is said.

    On a tie it tells who is odd.
    """
    took = [{state.signals.fact(rank, "checkpoint/moments") is not None for rank in alike} for alike in one.classes]
    if sorted(map(sorted, took)) != [[False], [True]]:
        return one
    without, loaded = (tuple(one.classes[took.index({side})]) for side in (False, True))
    said = (
        f"{words.ranks_text(loaded)} {words.verb(loaded, 'has', 'have')} loaded an optimizer's state (load_state_dict)"
    )
    said += f", {words.ranks_text(without)} {words.verb(without, 'has', 'have')} not"
    return replace(one, said=said, odd=without if one.is_tie else ())


def _how(entry: Entry, declared: bool) -> How:
    seen = entry.agreement
    if seen.last_equal == NONE:
        return How.LOADED if declared and entry.kind == "parameter" else How.NEVER
    if seen.first_unequal <= EARLY_STEP:
        return How.UNREDUCED if entry.kind == "parameter" else How.NEVER
    return How.CHANGED


def _owned(state: JobState, entry: Entry, how: How, models: Models) -> bool:
    """Whether a trained tensor that nothing declares replicated should be so all the same.

    One that differed from the start is a shard, an expert or a stage, for all that is known; but not where the ranks
    make the same updates of it, as after a reduction by hand.
    """
    siblings = models.of(entry)
    if how is How.NEVER:
        return _is_updated_alike(state, entry, siblings)
    if how is How.CHANGED:
        apart = _few(siblings) or not _at_once(siblings) or any(_is_lost(one) for one in siblings)
        return apart or _is_given_the_same(entry, siblings)
    if not all(communicates(state, rank) for rank in entry.infos) or models.are_stages(entry):
        return False
    # Averaged now and then, weights differ in between; wrapped ones beside it say that this is no such training.
    return any(info.placement != "plain" for one in siblings for info in one.infos.values()) or not in_bursts(
        state, entry.infos
    )


def _is_given_the_same(weight: Entry, model: list[Entry]) -> bool:
    """Whether its gradient was equal on all ranks whenever it was compared, also after it had parted.

    Ranks that a script gives other weights to, as for other folds, do not reduce what they add to them.
    """
    mine = (entry.agreement for entry in model if (entry.kind, entry.name) == ("gradient", weight.name))
    return any(not seen.parts and seen.last_equal > weight.agreement.first_unequal for seen in mine)


def _is_updated_alike(state: JobState, weight: Entry, model: list[Entry]) -> bool:
    """Whether its gradient, and those of most of its model, were equal on all ranks whenever they were compared.

    Of experts and shards beside replicated weights they are not; those of an expert that nothing went to are all zeros.
    """
    gradients = [entry for entry in model if entry.kind == "gradient"]
    alike = {e.name for e in gradients if e.agreement.times >= SEEN_TWICE and not e.agreement.parts}
    norms = (state.signals.series(rank, f"grad_norm/{weight.name}") for rank in weight.infos)
    zero = any(norm is not None and len(norm) and not norm.values.any() for norm in norms)
    return weight.name in alike and not zero and len(alike) > len(gradients) / 2


def _left_alone(state: JobState, entry: Entry, how: How, models: Models) -> bool:
    """Whether a tensor that no optimizer owns and no wrapper declares should be the same everywhere."""
    info = info_of(entry)
    siblings = models.of(entry)
    if how is not How.NEVER:  # an average that one rank keeps changes as a whole; a fault does not
        return not info.copy and _few(siblings)
    if info.trained_model:  # a stage's frozen part differs by design, unless its model is one that ranks share
        declared = (s.peers or any(i.placement != "plain" for i in s.infos.values()) for s in siblings)
        return any(declared) or (not is_expert(entry.name) and set(entry.infos) in models.replicas)
    return not (info.copy and _differs_by_design(entry, models))


def _differs_by_design(entry: Entry, models: Models) -> bool:
    """Whether the trained twin differs from the start too: both are split over the ranks."""
    model = model_of(entry).removesuffix(" (copy)")
    name = model + entry.name.removeprefix(model_of(entry))
    twins = [twin for twin in models.entries.get(model, ()) if twin.name == name and twin.kind == entry.kind]
    return any(not twin.agreement.first_equal for twin in twins)


def _few(model: list[Entry]) -> bool:
    compared = [entry for entry in model if entry.agreement.first != NONE and entry.kind == "parameter"]
    return sum(entry.agreement.unequal > 0 for entry in compared) <= FEW * len(compared)


def _is_lost(gradient: Entry) -> bool:
    """Whether it was reduced, and then all the same on most ranks and not on the rest."""
    seen = gradient.agreement
    return gradient.kind == "gradient" and seen.first_equal and any(len(classes[0]) > 1 for _, classes in seen.parts)


def _at_once(model: list[Entry]) -> bool:
    """Whether all that differ may have parted in one step: then the script may have done it, as by loading."""
    seen = [one.agreement for one in model if one.kind == "parameter" and one.agreement.unequal]
    return max(one.last_equal for one in seen) < min(one.first_unequal for one in seen)
