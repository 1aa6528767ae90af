"""A tensor that a script has made equal on ranks that share nothing else, as an embedding that two stages hold."""

from diagd.daemon.detectors.models import Models, is_matrix, model_of
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Entry

SEVERAL = 2  # other matrices
LARGER = 10.0  # times the first step that was looked at: it is not what the first few steps have made of zeros


def was_made_equal(state: JobState, weight: Entry, models: Models) -> bool:
    """Whether it alone began the same on its ranks, while all else that they hold of its model began apart.

    As an embedding that the first and the last stage of a pipeline share. What begins with zeros is alike anyhow.
    """
    ranks = frozenset(weight.infos)

    def matrices() -> tuple[int, list[Entry]]:
        found = [one for one in models.of(weight) if is_matrix(one) and ranks <= set(one.infos)]
        return len(found), [one for one in found if not _begins_apart(one, set(ranks))]

    if not is_matrix(weight):
        return False
    count, alike = models.once(("alike", model_of(weight), ranks), matrices)
    if count <= SEVERAL or any(one is not weight for one in alike):
        return False
    return all(_began_with_values(state, rank, weight.name) for rank in weight.infos)


def _begins_apart(entry: Entry, ranks: set[int]) -> bool:
    classes = entry.agreement.parts[0][1] if entry.agreement.parts and not entry.agreement.first_equal else []
    return bool(classes) and all(len(ranks & set(alike)) <= 1 for alike in classes)


def _began_with_values(state: JobState, rank: int, name: str) -> bool:
    """Whether it was larger in the first steps than what these have changed of it."""
    size, change = (state.signals.series(rank, f"{what}/{name}") for what in ("param_norm", "update_norm"))
    if size is None or change is None or not len(size) or not len(change):
        return False
    return float(size.values[0]) > LARGER * float(change.values[0])
