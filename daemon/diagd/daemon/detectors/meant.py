"""Whether a tensor that no wrapper and no mesh declares replicated should be the same on all ranks all the same."""

from diagd.daemon.detectors.differing import SEEN_TWICE, How
from diagd.daemon.detectors.made_equal import was_made_equal
from diagd.daemon.detectors.meetings import in_bursts, meet_as_before
from diagd.daemon.detectors.models import Models, info_of, is_any_matrix, model_of
from diagd.daemon.detectors.numerics.weights import is_expert
from diagd.daemon.detectors.replicas import (
    averages_over,
    communicates,
    is_clocked,
    mixes,
    only_averages,
    passes_on,
    share_a_dataset,
)
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import NONE, Entry

ALONE = " of one rank"  # of a placement, as the probes tell it
CHANGES = 2  # samples, no two of which are the same
HARDLY = 8  # operations, as of a start
FEW = 0.5  # of a model's tensors: a change of more of them is something that the script does


def owned(state: JobState, entry: Entry, how: How, models: Models) -> bool:
    """Whether a trained tensor that nothing declares replicated should be so all the same.

    One that differed from the start is a shard, an expert or a stage, for all that is known; but not where the ranks
    make the same updates of it, as after a reduction by hand.
    """
    siblings = models.of(entry)
    if entry.beside and not models.once(("averaged", entry.beside), lambda: averages_over(state, entry.beside)):
        return False  # stages of a pipeline hold parts of one name too, and so do experts
    if _is_trained_for_others(entry, models):
        return False
    if how is How.NEVER:
        return _is_updated_alike(state, entry, models)
    if how is How.CHANGED:
        apart = models.once(("apart", model_of(entry)), lambda: _has_parted_by_fault(siblings))
        return apart or _is_given_the_same(entry, models) or _is_reduced_in_vain(state, entry, models)
    if how is How.UNREDUCED and was_made_equal(state, entry, models):
        return True
    if how is How.UNREDUCED and _is_nobodys(state, entry, models):
        return True
    if not all(communicates(state, rank) for rank in entry.infos) or models.are_stages(entry):
        return False
    if _is_of_own_part(state, entry, models):
        return False
    if not all(is_clocked(state, rank) for rank in entry.infos) or all(mixes(state, rank) for rank in entry.infos):
        return False
    if is_wrapped_alone(entry) and not all(only_averages(state, rank) for rank in entry.infos):
        return False  # the ranks of a model that is split have a wrapper each where each is the only one of its kind
    # Averaged now and then, weights differ in between; wrapped ones beside it say that this is no such training.
    declared = models.once(("declared", model_of(entry)), lambda: any(map(_is_declared, siblings)))
    return declared or not in_bursts(state, entry.infos)


def _is_nobodys(state: JobState, entry: Entry, models: Models) -> bool:
    """Whether ranks that begin with one model and share the samples of one dataset exchange nothing at all."""
    ranks = tuple(sorted(entry.infos))
    whole = len(ranks) == state.world_size > 1 and not models.are_stages(entry)
    silent = all(only_averages(state, rank) and _has_exchanged(state, rank) <= HARDLY for rank in ranks)
    return whole and silent and share_a_dataset(state, ranks)


def _has_exchanged(state: JobState, rank: int) -> int:
    issued = sum(max(group.enqueued, 0) for group in state.detail(rank).groups)
    return max(issued, int(state.columns.operations[rank]))


def _has_parted_by_fault(model: list[Entry]) -> bool:
    """Whether few of a model's tensors have parted, or one after another, or where a gradient was lost."""
    return _few(model) or not _at_once(model) or any(_is_lost(one) for one in model)


def _gradients(weight: Entry, models: Models) -> list[Entry]:
    """Its gradient on its ranks."""

    def by_name() -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in models.of(weight):
            if entry.kind == "gradient":
                found.setdefault(entry.name, []).append(entry)
        return found

    mine = models.once(("gradients", model_of(weight)), by_name).get(weight.name, [])
    return [entry for entry in mine if entry.together == weight.together]


def _is_of_own_part(state: JobState, entry: Entry, models: Models) -> bool:
    """Whether the matrices of its module began apart: biases begin with zeros on all ranks, also those of shards.

    Of a norm, which has none beside it, the block tells whose it is; not where ranks may hold shards of that block,
    which have their norms in common.
    """
    if is_any_matrix(entry):
        return False
    module = entry.name.rpartition(".")[0]
    beside = models.matrices_in(module)
    staged = not beside and all(passes_on(state, rank) for rank in entry.infos)
    if staged or (not beside and "expert" in module.lower()):
        beside = models.matrices_in(module.rpartition(".")[0])
    alike = sum(one.agreement.first_equal for one in beside)
    return bool(beside) and (2 * alike < len(beside) if staged else not alike)  # stages may share an embedding


def is_wrapped_alone(entry: Entry) -> bool:
    """Whether its wrapper has a single rank, though there are others: then it makes nothing the same."""
    return any(info.placement.endswith(ALONE) for info in entry.infos.values())


def _is_declared(entry: Entry) -> bool:
    return any(info.placement != "plain" for info in entry.infos.values()) and not is_wrapped_alone(entry)


def _is_trained_for_others(weight: Entry, models: Models) -> bool:
    """Whether some ranks neither own it nor have a gradient for it: they are given it, as actors are by a learner."""
    without = {rank for rank, info in weight.infos.items() if not info.owned}
    return bool(without) and all(without.isdisjoint(entry.infos) for entry in _gradients(weight, models))


def _is_given_the_same(weight: Entry, models: Models) -> bool:
    """Whether its gradient was equal on all ranks whenever it was compared, also after it had parted.

    Ranks that a script gives other weights to, as for other folds, do not reduce what they add to them.
    """
    mine = (entry.agreement for entry in _gradients(weight, models))
    return any(not seen.parts and seen.last_equal > weight.agreement.first_unequal for seen in mine)


def _is_reduced_in_vain(state: JobState, weight: Entry, models: Models) -> bool:
    """Whether its gradient was equal until it parted and no longer is, and the ranks go on meeting in each step.

    Ranks that a script lets part, to tune on data of their own or to average now and then, no longer meet as often.
    """
    seen = weight.agreement
    for gradient in _gradients(weight, models):
        given = gradient.agreement
        lately = [step for step, _ in given.parts if step >= seen.first_unequal]
        was_equal = given.times - len(given.parts) >= SEEN_TWICE and given.last_equal < seen.first_unequal
        if was_equal and lately and given.parts[0][0] > given.last_equal:
            return meet_as_before(state, weight.infos, given.last_equal, seen.first_unequal)
    return False


def _is_updated_alike(state: JobState, weight: Entry, models: Models) -> bool:
    """Whether its gradient, and those of most of its model, were equal on all ranks whenever they were compared.

    Of experts and shards beside replicated weights they are not; those of an expert that nothing went to are all zeros.
    """

    def of_model() -> tuple[set[str], int]:
        gradients = [entry for entry in models.of(weight) if entry.kind == "gradient"]
        alike = {e.name for e in gradients if e.agreement.times >= SEEN_TWICE and not e.agreement.parts}
        return alike, len(gradients)

    alike, count = models.once(("updated", model_of(weight)), of_model)
    norms = (state.signals.series(rank, f"grad_norm/{weight.name}") for rank in weight.infos)
    zero = any(norm is not None and len(norm) and not norm.values.any() for norm in norms)
    return weight.name in alike and not zero and len(alike) > count / 2


def left_alone(state: JobState, entry: Entry, how: How, models: Models) -> bool:
    """Whether a tensor that no optimizer owns and no wrapper declares should be the same everywhere."""
    info = info_of(entry)
    siblings = models.of(entry)
    if how is not How.NEVER:  # an average that one rank keeps changes as a whole; a fault does not
        if info.copy:
            key = "reference", model_of(entry), tuple(sorted(entry.infos))
            return models.once(key, lambda: _is_reference(state, entry, models))
        return models.once(("few", model_of(entry)), lambda: _few(siblings))
    if info.trained_model:  # a stage's frozen part differs by design, unless its model is one that ranks share
        declared = models.once(("known", model_of(entry)), lambda: any(s.peers or _is_declared(s) for s in siblings))
        return declared or (not is_expert(entry.name) and set(entry.infos) in models.replicas)
    if info.trainable and not info.copy and _is_written_to(state, entry, models):
        return False
    return not (info.copy and _differs_by_design(entry, models))


def _is_reference(state: JobState, entry: Entry, models: Models) -> bool:
    """Whether all of the ranks that share a model call its untrained twin in training, as a reference is."""
    model = model_of(entry).removesuffix(" (copy)")
    shared = any(one.peers and set(entry.infos) <= set(one.peers) for one in models.entries.get(model, ()))
    told = (state.signals.fact(rank, "forward/frozen") for rank in entry.infos)
    called = all(fact is not None and model in fact[1].split(",") for fact in told)
    return called and (shared or set(entry.infos) in models.replicas)


def _is_written_to(state: JobState, entry: Entry, models: Models) -> bool:
    """Whether it is another one after each step on each rank, while an optimizer steps something else.

    As the members of a population that each rank scores: the script puts them there, and never the same ones.
    """
    if not all(state.signals.series(rank, "lr/0") for rank in entry.infos):
        return False
    samples = list(state.tensors.samples(models.places[id(entry)]).values())
    told = [[digests[rank] for digests in samples if rank in digests] for rank in entry.infos]
    # Before the first step it may be what it is after it.
    return all(len(set(digests)) >= max(CHANGES, len(digests) - 1) for digests in told)


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
