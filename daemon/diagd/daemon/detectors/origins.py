"""What made weights part: gradients that were not the same on ranks that apply them, as far as those were compared.

Gradients say nothing alone: some reduce them inside the optimizer's step, after they were looked at. So those of
weights that have parted are looked at, and count only where they differed no later than the weights. One exception:
weights that one rank updates for all stay equal whatever the others' gradients are.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from diagd.daemon.detectors import words
from diagd.daemon.detectors.differing import How, Parted
from diagd.daemon.detectors.factors import factor, norm
from diagd.daemon.detectors.models import info_of, model_of
from diagd.daemon.detectors.parting import moments_loaded
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import NONE, Entry

VOID = 2  # unequal gradients after which the weights were equal all the same
NEVER = 3  # comparisons without any that was equal
KIND = "divergence.gradient"
PAIR = 2  # ranks, of which neither is in the majority: what one has changed looks as what neither has reduced
INTEGRATED = 2  # tensors whose moments must have parted with them, to tell what none of the samples has met
BESIDE = 2  # tensors before and after
BUCKET_BYTES = 1024 * 1024  # of the first bucket, the smallest (torch.distributed._DEFAULT_FIRST_BUCKET_BYTES)
_DECOUPLED = ("AdamW", "NAdamW", "Lion", "LAMB")  # their moments do not know the weights


def gradients(state: JobState, found: Sequence[Parted]) -> list[Parted]:
    """The gradients that explain why weights parted, in the order in which they differed."""
    told = []
    for key in sorted({(model_of(one.entry), one.entry.together) for one in found if _may_be_explained(one)}):
        weights = [one for one in found if _may_be_explained(one) and key == (model_of(one.entry), one.entry.together)]
        told += _of_model(state, weights)
    told += [*_of_sent_out(state), *_of_thrown_away(state)]
    return sorted(told, key=lambda one: one.since)


def by_equal_gradients(state: JobState, found: Sequence[Parted]) -> list[Parted]:
    """The same; of weights that parted with the first updates it is told where their gradients were equal."""
    given = {(e.name, e.together): e.agreement for e in state.tensors.entries if e.kind == "gradient"}

    def told(one: Parted) -> Parted:
        seen = given.get((one.entry.name, one.entry.together))
        equal = seen is not None and not seen.parts and seen.last_equal >= one.since
        return replace(one, how=How.UPDATED) if equal and one.how is How.UNREDUCED else one

    return [told(one) for one in found]


def _of_sent_out(state: JobState) -> list[Parted]:
    """Gradients under DDP that never were equal, of weights that are updated on one rank and sent to the others."""
    entries = state.tensors.entries
    never = [e for e in entries if e.kind == "gradient" and len(e.agreement.parts) >= NEVER and _is_never(e)]
    if not never:
        return []
    keepers = {
        (e.name.rpartition(".")[0], e.peers): set(e.infos)
        for e in entries
        if e.kind == "state" and 0 < len(e.infos) < len(e.peers)
    }
    found = []
    for gradient in never:
        ranks = keepers.get((gradient.name, gradient.peers))
        if ranks is not None:
            step, classes = gradient.agreement.parts[0]
            said = f"its optimizer state lies on {words.ranks_text(ranks)} alone, which updates it for the others"
            found.append(Parted(gradient, KIND, How.UNREDUCED, False, step, classes, said))
    return found


def _of_thrown_away(state: JobState) -> list[Parted]:
    """Gradients that never were equal, of weights that stay equal as the script sends them, and sends nothing else."""
    weights = {(e.name, e.together): e for e in state.tensors.entries if e.kind == "parameter"}
    found = []
    for gradient in state.tensors.entries:
        weight = weights.get((gradient.name, gradient.together))
        if gradient.kind != "gradient" or weight is None or not _is_sent_alone(state, weight, gradient):
            continue
        step, classes = gradient.agreement.parts[0]
        said = "the weights stay equal as they are broadcast; nothing else is, and nothing adds gradients up"
        found.append(Parted(gradient, KIND, How.UNREDUCED, False, step, classes, said))
    return found


def _is_sent_alone(state: JobState, weight: Entry, gradient: Entry) -> bool:
    given, held = gradient.agreement, weight.agreement
    if given.last_equal != NONE or len(given.parts) < NEVER or held.parts or held.last_equal < given.parts[-1][0] - 1:
        return False
    plain = all(info.placement == "plain" and info.owned and not info.local for info in weight.infos.values())
    told = [state.signals.fact(rank, "data/moved") for rank in gradient.infos]
    return plain and all(fact is not None and fact[1] == "BROADCAST" for fact in told)


def _is_never(gradient: Entry) -> bool:
    declared = all(info.placement == "ddp" for info in gradient.infos.values())
    return declared and gradient.agreement.last_equal == NONE


def _may_be_explained(one: Parted) -> bool:
    return one.kind == "divergence.parameter" and one.how in (How.UNREDUCED, How.CHANGED) and one.info.owned


def _of_model(state: JobState, weights: list[Parted]) -> list[Parted]:
    model, peers = model_of(weights[0].entry), weights[0].entry.together
    entries = [e for e in state.tensors.entries if e.together == peers and model_of(e) == model]
    given = {e.name: e for e in entries if e.kind == "gradient"}
    if any(_is_void(one.entry, given.get(one.entry.name)) for one in weights):
        return []
    first = min(one.since for one in weights)
    reduced = any(e.agreement.last_equal > first for e in given.values())
    factors = _Factors(state, weights, given)
    found = [
        _judged(state, one, gradient, factors)
        for one in weights
        if (gradient := given.get(one.entry.name)) is not None and _comes_first(one, gradient, first, reduced)
    ]
    if any(one.how is How.MIXED for one in found):  # and some by chance with what no other rank has
        found = [replace(one, how=How.MIXED) if one.how is How.UNREDUCED else one for one in found]
    return found or (_by_moments(state, weights, entries, given) if reduced else [])


def _is_void(weight: Entry, gradient: Entry | None) -> bool:
    """Whether the weight stayed equal under unequal gradients: they are reduced after we look."""
    if gradient is None:
        return False
    return sum(step <= weight.agreement.last_equal for step, _ in gradient.agreement.parts) >= VOID


def _comes_first(weight: Parted, gradient: Entry, first: int, reduced: bool) -> bool:
    """Whether the gradient's difference is no consequence of the weights': where it is reduced, it cannot be."""
    seen = gradient.agreement
    if not seen.parts or seen.parts[-1][0] <= weight.entry.agreement.last_equal:
        return False
    return reduced or seen.parts[0][0] <= (weight.since if weight.entry.peers else first)


class _Factors:
    """By what factors the gradients of a step differ, found once for all that differ so in it."""

    def __init__(self, state: JobState, weights: Sequence[Parted], given: dict[str, Entry]) -> None:
        self._state = state
        self._names: dict[int, list[str]] = {}
        self._known: dict[str, str] = {}
        for name in dict.fromkeys(one.entry.name for one in weights):
            for step in dict.fromkeys(step for step, _ in (given[name].agreement.parts if name in given else ())):
                self._names.setdefault(step, []).append(name)

    def __call__(self, step: int, classes: list[list[int]]) -> str:
        key = f"{step} {classes}"
        if key not in self._known:
            self._known[key] = factor(self._state, self._names.get(step, []), classes, step)
        return self._known[key]


def _judged(state: JobState, weight: Parted, gradient: Entry, factors: _Factors) -> Parted:
    seen = gradient.agreement
    before = [part for part in seen.parts if part[0] > weight.entry.agreement.last_equal]
    step, classes = before[0]
    by = factors(step, classes)
    if by:
        return Parted(gradient, KIND, How.CLIPPED, True, step, classes, by)
    if seen.last_equal == NONE or (seen.last_equal < step and step <= 2):
        shared = any(len(alike) > 1 for alike in classes)  # own data alone gives no two ranks the same
        how = How.MIXED if shared else How.UNREDUCED
        return Parted(gradient, KIND, how, weight.sure, step, classes, weight.said)
    alone = all(len(alike) == 1 for alike in classes)
    still = _reduced_still(state, gradient, step) if alone and len(classes) == PAIR else ()
    if alone and seen.last_equal < step and len(before) > 1 and not still:
        return Parted(gradient, KIND, How.STOPPED, weight.sure, step, classes)
    if still:
        said = f"that of {still[0]}, under the same wrapper, is equal in all steps since, as only reduced ones are"
        return Parted(gradient, KIND, How.LOST, weight.sure, step, classes, said)
    odd = _all_zeros(state, gradient.name, step, classes)
    said = f"on {words.ranks_text(odd)} it was all zeros" if odd else ""
    return Parted(gradient, KIND, How.LOST, weight.sure, step, classes, said, odd)


def _reduced_still(state: JobState, gradient: Entry, since: int) -> list[str]:
    """Others under its wrapper that were compared since then and always equal, though never the same twice."""
    if info_of(gradient).placement != "ddp":
        return []
    found = []
    for index, other in enumerate(state.tensors.entries):
        if other.kind == "gradient" and other.together == gradient.together and model_of(other) == model_of(gradient):
            told = [of for step, of in state.tensors.samples(index).items() if step >= since]
            held = [set(of.values()) for of in told if len(of) == len(other.together)]
            if len(held) > 1 and all(len(one) == 1 for one in held) and len(set().union(*held)) == len(held):
                found.append(other.name)
    return found


def _all_zeros(state: JobState, name: str, step: int, classes: list[list[int]]) -> tuple[int, ...]:
    """The ranks whose gradient was nothing but zeros, where others' was not: they are the odd ones, on a tie too."""
    ranks = sorted(rank for alike in classes for rank in alike)
    zero = tuple(rank for rank in ranks if norm(state, rank, name, step) == 0.0)
    return zero if len(zero) < len(ranks) else ()


def _by_moments(
    state: JobState, weights: Sequence[Parted], entries: Sequence[Entry], given: dict[str, Entry]
) -> list[Parted]:  # fmt: skip
    """Where no sample has met the gradient: moments remember all of them, and nothing else where decay is decoupled."""
    counters = [e for e in entries if e.kind == "state" and e.name.endswith(".step")]
    if any(e.agreement.parts for e in counters) or not _is_decoupled(state, weights[0].culprits):
        return []
    found = []
    for one in weights:
        moment = next(
            (e for e in entries if e.kind == "state" and _is_of(e.name, one.entry.name) and _agree(e, one)), None
        )
        gradient = given.get(one.entry.name)
        if moment is None or gradient is None or _was_equal(gradient, one) or moments_loaded(state, one.entry):
            continue
        if one.how is How.CHANGED and _is_in_one_bucket(one.entry, entries):
            said = "tensors whose gradients arrive in one bucket with its own have not parted: it was changed by itself"
            found.append(Parted(moment, "divergence.optimizer", How.CHANGED, True, one.since, one.classes, said))
        elif one.how is How.CHANGED:
            said = f"its moment {moment.name} differs between the same ranks, and remembers nothing but gradients"
            found.append(Parted(gradient, KIND, How.LOST, False, one.since, one.classes, said))
    return found if len(found) >= INTEGRATED else []


def _is_in_one_bucket(weight: Entry, entries: Sequence[Entry]) -> bool:
    """Whether DDP reduces its gradient together with that of a tensor beside it that is the same on all ranks still.

    What is lost on the way is lost for a whole bucket: the parameters in the reverse of their order, up to a size.
    """
    there = [e for e in entries if e.kind == "parameter" and model_of(e) == model_of(weight) and info_of(e).owned]
    if info_of(weight).placement != "ddp" or weight not in there:
        return False
    at, since = there.index(weight), weight.agreement.first_unequal
    near = [e for e in there[max(at - BESIDE, 0) : at + BESIDE + 1] if sum(map(_bytes, (e, weight))) < BUCKET_BYTES]
    return any(not e.agreement.parts and e.agreement.last_equal > since for e in near)


def _bytes(entry: Entry) -> int:
    info = info_of(entry)
    return math.prod(info.shape) * 4


def _is_of(state_name: str, name: str) -> bool:
    return state_name.rpartition(".")[0] == name and not state_name.endswith(".step")


def _agree(moment: Entry, weight: Parted) -> bool:
    return any(classes == weight.classes for _, classes in moment.agreement.parts)


def _was_equal(gradient: Entry, weight: Parted) -> bool:
    """Whether the gradient of the very step in which the weight parted was compared, and equal."""
    seen = weight.entry.agreement
    return weight.since - seen.last_equal == 1 and gradient.agreement.last_equal >= weight.since


def _is_decoupled(state: JobState, ranks: Sequence[int]) -> bool:
    fact = state.signals.fact(ranks[0], "optimizer/0") if ranks else None
    if fact is None:
        return False
    text = fact[1]
    return (
        text.startswith(_DECOUPLED)
        or "decoupled_weight_decay=True" in text
        or any(none in text.split() for none in ("weight_decay=0", "weight_decay=0.0"))
    )
