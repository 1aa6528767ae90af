"""Parts of a model of which several ranks hold a copy, as of experts or shards with a few ranks to each: they part.

Nothing declares which ranks hold the same part. It shows in what they begin with: the ranks fall into groups, each with
other values, while the rest of the model is the same on all of them and stays so. Copies that no longer agree within
their group after the first updates are not reduced over it.
"""

from dataclasses import replace

from diagd.daemon.detectors.differing import How, Parted, parted_now
from diagd.daemon.detectors.models import Models, is_any_matrix, model_of
from diagd.daemon.state.ledger import Entry

SEVERAL = 2  # matrices that begin in the same groups


def copies_apart(entry: Entry, models: Models) -> Parted | None:
    """A trained tensor whose groups have come apart, and since when; None where it has none, or they have not."""
    began, parts = _groups(entry), entry.agreement.parts
    if not began:
        return None
    broken = next((step for step, now in parts[1:] if not _hold(began, now)), None)
    if broken is None or _hold(began, entry.agreement.classes):
        return None
    key = "copies", model_of(entry), str(began)
    if not models.once(key, lambda: _is_a_part(models.of(entry), began, broken)):
        return None
    found = parted_now(entry, "divergence.parameter", How.UNREDUCED, sure=False)
    said = "before the first step its copies agreed among " + " and among ".join(
        "ranks " + ",".join(map(str, alike)) for alike in sorted(began)
    )
    return replace(found, since=broken, said=said)


def _groups(entry: Entry) -> list[list[int]]:
    """How the ranks were parted before the first step, where none was alone; empty where that is not so."""
    parts = entry.agreement.parts
    if entry.agreement.first != 0 or not parts or parts[0][0] != 0 or entry.together:
        return []
    return parts[0][1] if len(parts[0][1]) > 1 and all(len(alike) > 1 for alike in parts[0][1]) else []


def _hold(began: list[list[int]], now: list[list[int]]) -> bool:
    """Whether the ranks of each group still agree."""
    return all(any(set(alike) <= set(other) for other in now) for alike in began)


def _is_a_part(model: list[Entry], began: list[list[int]], broken: int) -> bool:
    """Whether several matrices begin in these groups, and all ranks of them share the rest of the model."""
    ranks = {rank for alike in began for rank in alike}
    like = sum(is_any_matrix(one) and _groups(one) == began for one in model)
    shared = (one for one in model if is_any_matrix(one) and ranks <= set(one.infos) and not one.agreement.parts)
    return like >= SEVERAL and any(one.agreement.last_equal > broken for one in shared)
