"""Replicas whose wrapper was given too small a group: it averages over some of the ranks that hold copies of a model.

Where the ranks of a group each compute a part of the same samples (context or sequence parallel, domains of one image),
each has a part of every gradient, too: what is not added up over that group as well lets its ranks part. The copies
began equal on all ranks and are kept equal by halves; and the group is there to be seen, as the script's own backward
passes exchange activations in it. Ranks that hold shards exchange these likewise, and have norms and biases in common,
which stay equal; members of an ensemble exchange nothing in backward.
"""

from collections import defaultdict
from collections.abc import Mapping

from diagd.daemon.detectors import words
from diagd.daemon.detectors.differing import SEEN_TWICE, How, Parted
from diagd.daemon.detectors.models import info_of, model_of
from diagd.daemon.detectors.replicas import members
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Agreement, Entry

NEARLY_ALL = 0.9  # of a model's tensors: some may have no gradient yet

Samples = dict[int, dict[int, int]]  # step -> rank -> digest


def too_narrow(state: JobState) -> list[Parted]:
    """The gradients of each such model."""
    named: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, entry in enumerate(state.tensors.entries):
        if entry.kind == "parameter" and len(entry.peers) > 1 and all(_by_ddp(entry, r) for r in entry.infos):
            named[model_of(entry)][entry.name].append(place)
    return [one for by_name in named.values() for one in _of_model(state, by_name)]


def _by_ddp(entry: Entry, rank: int) -> bool:
    info = entry.infos[rank]
    return info.placement == "ddp" and info.owned


def _of_model(state: JobState, by_name: Mapping[str, list[int]]) -> list[Parted]:
    groups = {tuple(sorted(state.tensors.entries[at].peers for at in places)) for places in by_name.values()}
    if len(groups) != 1 or len(over := groups.pop()) < 2 or not (shared := _share_samples(state, over)):
        return []
    said = (
        f"in backward passes {' and '.join(map(words.ranks_text, shared))} exchange parts of what they compute, as"
        f" where each works on a part of the same samples; the wrapper averages over {words.ranks_text(over[0])} alone"
    )
    found, count = [], 0
    for places in by_name.values():
        samples = _together(state, places)
        if _stays_equal(samples):
            return []  # of shards this is what their ranks have in common
        count += 1
        if (parted := _apart(state, places, samples, said)) is not None:
            found.append(parted)
    return found if len(found) >= NEARLY_ALL * count else []


def _share_samples(state: JobState, over: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """The groups in which ranks of several of these sets exchange something in backward; none unless all ranks do."""
    ranks = {rank for peers in over for rank in peers}
    facts = {rank: state.signals.fact(rank, "data/within") for rank in ranks}
    told = {rank: set(map(members, fact[1].split())) for rank, fact in facts.items() if fact is not None}
    crossing = {
        group
        for group in set().union(*told.values())
        if sum(not set(peers).isdisjoint(group) for peers in over) > 1
        and all(group in told.get(rank, ()) for rank in group)
    }
    return sorted(crossing) if ranks == {rank for group in crossing for rank in group} else []


def _together(state: JobState, places: list[int]) -> Samples:
    """The digests of all ranks, at the steps that all have told."""
    ranks = {rank for at in places for rank in state.tensors.entries[at].peers}
    found: Samples = defaultdict(dict)
    for at in places:
        for step, digests in state.tensors.samples(at).items():
            found[step].update(digests)
    return {step: digests for step, digests in sorted(found.items()) if set(digests) == ranks}


def _stays_equal(samples: Samples) -> bool:
    """Whether it was changed, and the same way on all ranks."""
    alike = [set(digests.values()) for digests in samples.values()]
    return all(len(one) == 1 for one in alike) and len(set().union(*alike)) > 1


def _apart(state: JobState, places: list[int], samples: Samples, said: str) -> Parted | None:
    """The tensor over all ranks, where they began equal and have been apart since, by their wrappers' groups."""
    began = samples.get(0, {})
    later = {step: _classes(digests) for step, digests in samples.items() if step > 0}
    if len(set(began.values())) != 1 or len(later) < SEEN_TWICE:
        return None
    entries = [state.tensors.entries[at] for at in places]
    sets = sorted(sorted(entry.peers) for entry in entries)
    if any(sorted(classes) != sets for classes in later.values()):
        return None
    since, infos = min(later), {rank: info for entry in entries for rank, info in entry.infos.items()}
    if len({(info.shape, info.dtype) for info in infos.values()}) > 1:
        return None
    seen = Agreement(0, True, 0, since, len(later), sets, len(samples), list(later.items()))
    whole = Entry("parameter", info_of(entries[0]).name, (), infos, seen)
    return Parted(whole, "divergence.gradient", How.MIXED, False, since, sets, said)


def _classes(digests: dict[int, int]) -> list[list[int]]:
    alike: dict[int, list[int]] = defaultdict(list)
    for rank, digest in sorted(digests.items()):
        alike[digest].append(rank)
    return list(alike.values())
