"""Ranks that hold something else in tensors that should be the same on all of them."""

from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.parting import How, Parted, model_of, parted
from diagd.daemon.detectors.scene import Scene

MAX_NAMES = 20
SHOWN = 3  # names in the summary
# The earlier explain the later.
EXPLAINED = ("divergence.optimizer", "divergence.parameter", "divergence.frozen", "divergence.buffer")

_WHY = {
    How.LOADED: "they were made equal when the model was wrapped, and differed before the first step: some ranks have"
    " loaded or changed theirs in between",
    How.NEVER: "they differ from the start, and nothing has made them equal",
    How.UNREDUCED: "they were equal before the first step and have parted with the first updates: what the ranks add to"
    " them is not reduced over the ranks",
    How.CHANGED: "they were equal and then were not: a rank's memory has changed otherwise than by the steps that all"
    " have made",
}
_EFFECT = {
    "divergence.optimizer": "with updates that differ between ranks",
    "divergence.parameter": "with ranks that do not train the same model",
    "divergence.frozen": "with ranks that do not train with the same frozen weights",
    "divergence.buffer": "with ranks that evaluate and save something else",
}
_WHY_OF = {
    ("divergence.buffer", How.NEVER): "each rank updates its own, from its own data, and its wrapper does not broadcast"
    " them",
    (
        "divergence.optimizer",
        How.LOADED,
    ): "the optimizers of the ranks have counted different numbers of steps: some have"
    " loaded their state, or lost it, and others have not",
}


def divergence(scene: Scene) -> Iterator[Finding]:
    """One finding for all tensors of a model that parted in the same way, among the same ranks."""
    groups: dict[tuple[str, str, How, tuple[int, ...]], list[Parted]] = {}
    for one in parted(scene.state):
        culprits, _ = minority(one.entry.agreement.classes)
        groups.setdefault((one.kind, model_of(one.entry), one.how, culprits), []).append(one)
    told: dict[tuple[int, ...], int] = {}
    for (kind, model, how, culprits), found in sorted(groups.items(), key=lambda item: EXPLAINED.index(item[0][0])):
        depth = EXPLAINED.index(kind)
        if told.setdefault(culprits, depth) < depth:
            continue  # what differs because the weights do
        yield _finding(kind, model, how, culprits, found)


def _finding(kind: str, model: str, how: How, culprits: tuple[int, ...], found: list[Parted]) -> Finding:
    first = found[0]
    why = _WHY_OF.get((kind, how), _WHY[how])
    sure = all(one.sure for one in found)
    basis = Basis.OBSERVATION if sure and how in (How.LOADED, How.CHANGED) else Basis.INFERENCE
    cause = Cause(how.value, why, 0.9 if basis is Basis.OBSERVATION else 0.7, basis, _evidence(first))
    return Finding(
        kind=kind,
        severity=Severity.CRITICAL if sure else Severity.WARNING,
        ranks=culprits,
        summary=words.shortened(_summary(culprits, found, how)),
        causes=(cause,),
        names=tuple(one.entry.name for one in found[:MAX_NAMES]),
        step=first.since,
        sure=True,  # each was compared at two steps at least
        goes_on=True,
        key=f"{model}:{how.value}",
    )


def _summary(culprits: tuple[int, ...], found: list[Parted], how: How) -> str:
    names = ", ".join(one.entry.name for one in found[:SHOWN])
    names = f"the optimizer state {names}" if found[0].kind == "divergence.optimizer" else names
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    first = found[0]
    _, tie = minority(first.entry.agreement.classes)
    when = f"since step {first.since}" if first.since else "from before the first step"
    if how is How.CHANGED:
        when += f" (equal at step {first.entry.agreement.last_equal})"
    others = sorted(set(first.entry.agreement.classes[0]) - set(culprits))
    if tie:
        text = (
            f"{words.ranks_text(culprits)} hold different values in {names}{more}, {when}; no side is in the majority"
        )
    else:
        holds = words.verb(culprits, "holds", "hold")
        text = f"{words.ranks_text(culprits)} {holds} other values than {words.ranks_text(others)} in {names}{more}"
        text += f", {when}"
    return f"{text}. The run goes on, {_EFFECT[first.kind]}"


def _evidence(one: Parted) -> tuple[Evidence, ...]:
    """What each side holds."""
    info, seen = one.info, one.entry.agreement
    shape = f"{info.dtype}[{','.join(map(str, info.shape))}]"
    declared = f", {info.placement}" if info.placement != "plain" else ""
    times = f"compared and unequal {seen.unequal} times since step {seen.first_unequal}"
    if len(seen.classes) == 2:
        sides = " | ".join(words.ranks_text(ranks) for ranks in seen.classes)
    else:
        sides = f"{len(seen.classes)} different values on {words.ranks_text(r for c in seen.classes for r in c)}"
    said = Evidence(f"digests of {one.entry.name} ({shape}{declared}): {sides}; {times}", "ledger", step=one.since)
    if seen.last_equal < 0:
        return (said,)
    return said, Evidence(f"it was equal on all of them after step {seen.last_equal}", "ledger", step=seen.last_equal)
