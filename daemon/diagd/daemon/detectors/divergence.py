"""Ranks that hold something else in tensors that should be the same on all of them."""

from collections.abc import Iterator
from dataclasses import replace

from diagd.daemon.detectors import divergence_words, narrowed, own_norms, words
from diagd.daemon.detectors.apart import apart
from diagd.daemon.detectors.axes import dealt_across
from diagd.daemon.detectors.differing import How, Parted
from diagd.daemon.detectors.dtypes import frozen_recast, recast
from diagd.daemon.detectors.finding import GOES_ON, Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.local_clip import local_clip
from diagd.daemon.detectors.meant import is_wrapped_alone
from diagd.daemon.detectors.models import model_of
from diagd.daemon.detectors.moved import told_apart, written_alone
from diagd.daemon.detectors.origins import by_equal_gradients, gradients
from diagd.daemon.detectors.parting import at_one_step, parted
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.detectors.too_narrow import too_narrow
from diagd.daemon.detectors.turn_taking import take_turns
from diagd.daemon.state.job import JobState
from diagd.daemon.steps import since_text

MAX_NAMES = 20
SHOWN = 3  # names in the summary
RECAST_LATE = 128  # steps: so far apart are at most those at which dtypes are looked at
# The earlier explain the later.
EXPLAINED = (
    "divergence.gradient", "divergence.optimizer", "divergence.parameter", "divergence.frozen", "divergence.buffer",
)  # fmt: skip


def divergence(scene: Scene) -> Iterator[Finding]:
    """One finding for all tensors of a model that parted in the same way, among the same ranks."""
    yield from local_clip(scene.state)
    told = apart(scene.state)
    yield from (one.finding for one in told)
    found = [one for one in parted(scene.state) if not any(other.explains(one) for other in told)]
    found = [one for one in found if not take_turns(scene.state, sorted(r for alike in one.classes for r in alike))]
    found = _without_recast(scene.state, found)
    found = [told_apart(scene.state, one) for one in found if at_one_step(scene.state, one)]
    found, written = _without_written(scene.state, dealt_across(scene.state, found))
    causes = gradients(scene.state, found)
    told_by = {id(one.entry) for one in causes}
    found = [*causes, *(one for one in by_equal_gradients(scene.state, found) if id(one.entry) not in told_by)]
    found = [*own_norms.set_aside(scene.state, found), *too_narrow(scene.state)]
    yield from _by_tensors(scene.state, [*written, *found])


def _without_written(state: JobState, found: list[Parted]) -> tuple[list[Parted], list[Parted]]:
    """What has not parted because of a write that one rank alone has made, and what it has written."""
    written = written_alone(state, found)
    models = {_copies_of(one) for one in written}
    return [one for one in found if _copies_of(one) not in models], written


def _copies_of(one: Parted) -> tuple[str, frozenset[int]]:
    """Which model it is of, and which ranks hold it."""
    return model_of(one.entry), frozenset(rank for alike in one.classes for rank in alike)


def _without_recast(state: JobState, found: list[Parted]) -> list[Parted]:
    """What parted since some of the ranks hold their weights in another dtype is told by that."""
    cast = frozen_recast(state) | recast(state)
    if not cast:
        return found
    earliest = min(cast.values()) - RECAST_LATE

    def by_dtype(one: Parted) -> bool:
        sides = {rank in cast for alike in one.classes for rank in alike}
        pure = all(len({rank in cast for rank in alike}) == 1 for alike in one.classes)
        return one.since >= earliest and pure and len(sides) > 1

    return [one for one in found if not by_dtype(one)]


def _by_tensors(state: JobState, found: list[Parted]) -> Iterator[Finding]:
    by_hand = bool(found) and _is_by_hand(state)
    found = _of_one_moment(found)
    groups: dict[tuple[int, str, str, How, tuple[int, ...]], list[Parted]] = {}
    for one in found:
        depth = _depth(one) + (len(EXPLAINED) if one.aside else 0)  # which explains nothing else
        groups.setdefault((depth, one.kind, model_of(one.entry), one.how, one.culprits), []).append(one)
    told: dict[tuple[int, ...], int] = {}
    for (depth, kind, model, how, culprits), parts in sorted(groups.items(), key=lambda g: (g[0][0], g[1][0].since)):
        if told.get(culprits, depth) < depth or (kind == "divergence.gradient" and culprits in told):
            continue  # what differs because the weights do, and gradients of weights that do
        told[culprits] = depth
        told.setdefault(parts[0].minority, depth)
        since = min(one.since for one in found if one.minority == parts[0].minority and model_of(one.entry) == model)
        finding = narrowed.with_places(_finding(kind, model, how, culprits, parts, by_hand), state, parts)
        yield replace(finding, step=since)  # where its effect was seen first


def _of_one_moment(found: list[Parted]) -> list[Parted]:
    """The same; where tensors of a model parted at one step between other ranks each, all of these are odd together.

    Where more than numbers tells who is odd in some of them, ties among the rest say nothing against it.
    """
    at_once: dict[tuple[object, ...], list[Parted]] = {}
    for one in found:
        at_once.setdefault((one.kind, model_of(one.entry), one.how, one.since, one.aside), []).append(one)
    return [one for some in at_once.values() for one in _odd_together(some)]


def _odd_together(found: list[Parted]) -> list[Parted]:
    known = any(one.odd for one in found)
    sides = {one.culprits for one in found if not (known and one.is_tie)}
    odd = tuple(sorted(set().union(*sides)))
    return found if len({one.culprits for one in found}) == 1 else [replace(one, odd=odd) for one in found]


def _depth(one: Parted) -> int:
    """What differs before the first step is explained by nothing that comes later."""
    weights = one.kind in ("divergence.parameter", "divergence.frozen")
    return EXPLAINED.index(one.kind) - (len(EXPLAINED) if weights and one.since == 0 else 0)


def _finding(kind: str, model: str, how: How, culprits: tuple[int, ...], found: list[Parted], by_hand: bool) -> Finding:
    first = found[0]
    why = divergence_words.why(kind, how) + narrowed.reading(how, found)
    if how is How.UNREDUCED and any(is_wrapped_alone(one.entry) for one in found):
        why += ". Their wrapper was given a process group of one rank, in which there is nobody to reduce with"
    replicas = any(one.entry.beside for one in found)
    if replicas:
        why += ". These ranks hold the same shard, of different replicas by their mesh"
    sure = all(one.sure for one in found)
    observed = how in _SEEN or (kind == "divergence.gradient" and not first.said)
    basis = Basis.OBSERVATION if sure and observed else Basis.INFERENCE
    key = f"{how.value}_by_hand" if how in _BY_HAND and (by_hand or replicas) else how.value
    if how is How.LOST and first.is_tie:
        key = "lost_tied"  # no rank is named whose host could be taken out
    if kind == "divergence.parameter" and narrowed.are_places(how, found):
        key = "flipped"
    if how is How.CHANGED and first.is_tie and kind in _TIED:
        key = "changed_tied"
    cause = Cause(key, why, 0.9 if basis is Basis.OBSERVATION else 0.7, basis, _evidence(first))
    return Finding(
        kind=kind,
        severity=Severity.INFO if all(one.aside for one in found) else Severity.CRITICAL if sure else Severity.WARNING,
        ranks=culprits,
        summary=words.shortened(_summary(culprits, found, how)),
        causes=(cause,),
        names=tuple(_names(found)[:MAX_NAMES]),
        step=first.since,
        sure=True,  # each was compared at two steps at least
        goes_on=True,
        key=f"{model}:{how.value}",
    )


_TIED = ("divergence.parameter", "divergence.frozen", "divergence.optimizer")
_SEEN = (How.LOADED, How.UNOWNED, How.CHANGED, How.CLIPPED)
_BY_HAND = (How.UNREDUCED, How.STOPPED)


def _is_by_hand(state: JobState) -> bool:
    """Whether no wrapper or mesh declares any tensor: then the script itself is to reduce what it adds to them."""
    infos = [info for entry in state.tensors.entries for info in entry.infos.values()]
    return all(info.placement == "plain" and not info.peers for info in infos)


_KEPT = {"divergence.optimizer": "the optimizer state ", "divergence.gradient": "the gradients of "}


def _names(found: list[Parted]) -> list[str]:
    """Each once: of shards it is several that have one name."""
    return list(dict.fromkeys(one.entry.name for one in found))


def _summary(culprits: tuple[int, ...], found: list[Parted], how: How) -> str:
    told = _names(found)
    names = _KEPT.get(found[0].kind, "") + ", ".join(told[:SHOWN])
    more = f" and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    first = found[0]
    when = _when(first, how)
    others = sorted({rank for alike in first.classes for rank in alike} - set(culprits))
    if found[0].entry.where is not None and len(found) == 1:
        names = f"{narrowed.place(first.entry)} of {names}"
    if first.is_tie or not others:
        text = (
            f"{words.ranks_text(culprits)} hold different values in {names}{more}, {when}; no side is in the majority"
        )
    else:
        holds = words.verb(culprits, "holds", "hold")
        text = f"{words.ranks_text(culprits)} {holds} other values than {words.ranks_text(others)} in {names}{more}"
        text += f", {when}"
    return f"{text}{GOES_ON}, {divergence_words.EFFECT[first.kind]}"


def _when(one: Parted, how: How) -> str:
    """Since when, as digests are taken of some steps: what was equal at first and what never was has no such range."""
    equal = one.entry.agreement.last_equal
    if not one.since:
        return "from before the first step"
    sampled = equal >= 0 and how not in (How.NEVER, How.UNREDUCED, How.UPDATED, How.UNOWNED, How.UNSENT)
    return since_text(equal + 1 if sampled else one.since, one.since)


def _evidence(one: Parted) -> tuple[Evidence, ...]:
    """What each side holds."""
    info, seen = one.info, one.entry.agreement
    shape = f"{info.dtype}[{','.join(map(str, info.shape))}]"
    declared = f", {info.placement}" if info.placement != "plain" else ""
    if len(one.classes) == 2:
        sides = " | ".join(words.ranks_text(ranks) for ranks in one.classes)
    else:
        sides = f"{len(one.classes)} different values on {words.ranks_text(r for c in one.classes for r in c)}"
    what = f"the gradient of {one.entry.name}" if one.entry.kind == "gradient" else one.entry.name
    said = [Evidence(f"digests of {what} ({shape}{declared}): {sides}; {_times(one)}", "ledger", step=one.since)]
    if seen.last_equal >= 0:
        text = f"it was equal on all of them after step {seen.last_equal}"
        if one.entry.kind == "gradient":
            text = (
                f"it was equal on all of them in step {seen.last_equal}, and in {seen.times - len(seen.parts)} in all"
            )
        said.append(Evidence(text, "ledger", step=seen.last_equal))
    return (*said, Evidence(one.said, "probe", step=one.since)) if one.said else tuple(said)


def _times(one: Parted) -> str:
    seen = one.entry.agreement
    if one.entry.kind == "gradient":
        return f"unequal in steps {', '.join(str(step) for step, _ in seen.parts[:4])}" if seen.parts else "not met"
    return f"compared and unequal {seen.unequal} times since step {seen.first_unequal}"
