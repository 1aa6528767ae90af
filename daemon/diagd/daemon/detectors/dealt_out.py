"""Optimizers that are divided over the ranks by hand: each weight is stepped by one rank, which sends it on."""

from diagd.daemon.detectors.models import Models, model_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Entry


def is_not_sent(state: JobState, entry: Entry, models: Models) -> bool:
    """Whether a weight that is not the same on all ranks is one that only one of them steps, and that it was to send.

    So it is where all of its model are stepped by one rank each, and others of them do reach all ranks. Actors are sent
    all they have by one learner, and ranks that train for themselves send nothing: two at least must be seen to send.
    """
    ranks = frozenset(entry.infos)

    def divided() -> bool:
        weights = [e for e in models.of(entry) if e.kind == "parameter" and frozenset(e.infos) == ranks and _owners(e)]
        alone = all(len(_owners(one)) == 1 for one in weights)
        return alone and len(set().union(*(_owners(one) for one in weights if _is_sent(state, one, models)))) > 1

    return len(_owners(entry)) == 1 and models.once(("divided", model_of(entry), ranks), divided)


def _owners(entry: Entry) -> set[int]:
    return {rank for rank, info in entry.infos.items() if info.owned and not info.copy}


def _is_sent(state: JobState, entry: Entry, models: Models) -> bool:
    """Whether it has changed, and was the same on all ranks whenever it was compared."""
    seen = entry.agreement
    samples = state.tensors.samples(models.places[id(entry)]).values()
    return seen.first_equal and not seen.unequal and len({min(digests.items()) for digests in samples}) > 1
