"""What to make of a tensor that is not the same on all ranks: whether that is a fault, and of which kind."""

from collections.abc import Callable, Container
from dataclasses import replace

from diagd.daemon.detectors import meant, own_rows, words
from diagd.daemon.detectors.copies import copies_apart
from diagd.daemon.detectors.dealt_out import is_not_sent
from diagd.daemon.detectors.differing import SEEN_TWICE, How, Parted, how_it_parted, parted_now
from diagd.daemon.detectors.meetings import together_until
from diagd.daemon.detectors.models import Models, info_of
from diagd.daemon.detectors.numerics.weights import is_expert
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Entry


def parted(state: JobState) -> list[Parted]:
    """All such tensors, in the order in which they parted."""
    given = {(e.name, e.together): e for e in state.tensors.entries if e.kind == "gradient" and e.agreement.parts}
    beside = _proven(state)
    return _all_judged(state, lambda entry: _is_seen(entry, given) or _is_with(entry, beside, state.tensors.asked))


def suspected(state: JobState) -> list[Parted]:
    """Those, and such as would be among them were they found to differ once more: replicas by their wrapper or mesh.

    Of what nothing declares to be equal a single comparison says too little to look closer.
    """
    if not any(entry.agreement.unequal for entry in state.tensors.entries):
        return []
    found = {(one.entry.kind, one.entry.name, one.entry.together): one for one in parted(state)}
    for one in _all_judged(state, lambda entry: entry.agreement.unequal == 1 and _may_be_sure(entry)):
        if one.sure or one.info.copy:
            found.setdefault((one.entry.kind, one.entry.name, one.entry.together), one)
    return sorted(found.values(), key=lambda one: one.since)


def _may_be_sure(entry: Entry) -> bool:
    """Whether its ranks are declared to agree, or it is the twin of what is: that is seldom looked at unasked."""
    return bool(entry.peers) or any(info.copy for info in entry.infos.values())


def _all_judged(state: JobState, is_meant: Callable[[Entry], bool]) -> list[Parted]:
    models = Models(state)
    judged = (_judged(state, entry, models) for entry in state.tensors.entries if is_meant(entry))
    return sorted((one for one in judged if one is not None), key=lambda one: one.since)


def _proven(state: JobState) -> list[tuple[tuple[int, ...], list[list[int]]]]:
    """Between which ranks tensors were found to differ more than once, and how these ranks are parted."""
    return [(e.together, e.agreement.classes) for e in state.tensors.entries if e.agreement.unequal >= SEEN_TWICE]


def _is_with(entry: Entry, beside: list[tuple[tuple[int, ...], list[list[int]]]], asked: Container[int]) -> bool:
    """Whether it differed between the same ranks as others that do for longer, when all were looked at at once."""
    seen = entry.agreement
    return seen.unequal == 1 and seen.first_unequal in asked and (entry.together, seen.classes) in beside


def _is_seen(entry: Entry, given: dict[tuple[str, tuple[int, ...]], Entry]) -> bool:
    """Whether it was found to differ twice, or once and its gradient between the same ranks since it was equal."""
    seen = entry.agreement
    if seen.unequal != 1 or entry.kind != "parameter":
        return seen.unequal >= SEEN_TWICE
    gradient = given.get((entry.name, entry.together))
    parts = gradient.agreement.parts if gradient is not None else ()
    return any(step > seen.last_equal and classes == seen.classes for step, classes in parts)


def at_one_step(state: JobState, one: Parted) -> bool:
    """Whether the ranks were side by side when it parted, as far as that is known: else it is not one moment's."""
    counters = one.how is How.LOADED and one.since > 0  # which count what each rank has stepped, at its own steps
    if one.how not in (How.CHANGED, How.LOST) and not counters:
        return True
    until = together_until(state, sorted(rank for alike in one.classes for rank in alike))
    return until is None or until >= one.since


def _judged(state: JobState, entry: Entry, models: Models) -> Parted | None:
    info = info_of(entry)
    how = how_it_parted(entry, bool(entry.peers))
    if entry.kind == "gradient":
        return None  # by itself: what it does to the weights tells (origins.py)
    if entry.kind == "state":
        return _of_optimizer(state, entry, models.of(entry))
    if entry.kind == "buffer":
        one = parted_now(entry, "divergence.buffer", how, sure=False)
        unsaved = all(one.transient for one in entry.infos.values())  # a meter of what this rank sees, most often
        if entry.peers:
            said = own_rows.of_samples(state, entry)
            return replace(one, aside=unsaved or bool(said), said=said)
        return replace(one, aside=True) if _counts_what_it_sees(entry, models) else None
    frozen = not (info.owned or info.trainable)
    kind = "divergence.frozen" if frozen else "divergence.parameter"
    if entry.peers:
        return _not_owned(entry, models) or parted_now(entry, kind, how, sure=True)
    if info.owned and how is How.NEVER and (apart := copies_apart(entry, models)) is not None:
        return apart
    if not frozen and is_not_sent(state, entry, models):
        return parted_now(entry, kind, How.UNSENT, sure=False)
    judge = meant.owned if info.owned else meant.left_alone
    if not judge(state, entry, how, models):
        return None
    # Nothing reduces what is written to frozen weights.
    return parted_now(entry, kind, How.CHANGED if frozen and how is How.UNREDUCED else how, sure=False)


def _not_owned(entry: Entry, models: Models) -> Parted | None:
    """A replica that the optimizers of some ranks were not given, where those of all have most of its model."""
    without = tuple(rank for rank, info in sorted(entry.infos.items()) if not info.owned)
    if not 0 < len(without) < len(entry.infos):
        return None
    weights = [one for one in models.of(entry) if one.kind == "parameter"]
    if 2 * sum(all(info.owned for info in one.infos.values()) for one in weights) <= len(weights):
        return None  # each rank steps its part
    whose = words.verb(without, "its optimizer was", "their optimizers were")
    said = f"{words.ranks_text(without)}: {whose} not given it, as that of the others was"
    found = parted_now(entry, "divergence.parameter", How.UNOWNED, sure=True)
    return replace(found, said=said, odd=without)


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
    if not entry.name.endswith(".step") and (loaded := moments_loaded(state, entry)):
        said = (
            f"{words.ranks_text(tuple(loaded))} {words.verb(tuple(loaded), 'has', 'have')} loaded an optimizer's state"
        )
        said += f" before step {min(loaded.values())} (load_state_dict)"
        return replace(parted_now(entry, "divergence.optimizer", How.CHANGED, sure=True), said=said)
    return None


def moments_loaded(state: JobState, entry: Entry) -> dict[int, int]:
    """Ranks whose moments came from a checkpoint since a tensor was equal, and before which step they did.

    Such moments remember what the checkpoint held, and not the gradients alone.
    """
    facts = {rank: state.signals.fact(rank, "checkpoint/moments") for rank in sorted(entry.infos)}
    since, until = entry.agreement.last_equal, entry.agreement.first_unequal
    return {rank: fact[0] for rank, fact in facts.items() if fact is not None and since < fact[0] <= until}


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
