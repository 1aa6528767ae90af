"""Tensors that hold another dtype than those that they must agree with, than before, or than what they hold needs."""

from collections import Counter
from collections.abc import Iterator

from diagd.daemon.detectors import words
from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.scene import Scene
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Entry

MAX_NAMES = 20
SHOWN = 3
HOLDS = frozenset({"parameter", "buffer", "state"})
BUFFER = "dtypes/buffer/"

Unlike = tuple[Entry, list[list[int]]]  # a tensor, and its ranks by dtype, the largest class first


def dtype_mismatch(scene: Scene) -> Iterator[Finding]:
    """Ranks against each other, parameters against what they were, and buffers against their content."""
    state = scene.state
    groups: dict[tuple[int, ...], list[Unlike]] = {}
    for entry, classes in _unlike(state):
        groups.setdefault(_culprits(state, classes, entry), []).append((entry, classes))
    for culprits, found in groups.items():
        yield _of_ranks(culprits, found)
    yield from _changed(state)
    yield from _cast(state, "frozen", "frozen ")
    yield from _cast(state, "recast", "buffers ")
    yield from _buffers(state)
    yield from _states(state)


def _unlike(state: JobState) -> Iterator[Unlike]:
    for entry in state.tensors.entries:
        members = state.tensors.members(entry, state.world_size) if entry.kind in HOLDS else ()
        infos = {rank: entry.infos[rank] for rank in members if rank in entry.infos}
        if len(infos) < 2 or any(info.local and not entry.peers for info in infos.values()):
            continue
        if len({info.dtype for info in infos.values()}) < 2 or len({info.shape for info in infos.values()}) > 1:
            continue
        by_dtype: dict[str, list[int]] = {}
        for rank in sorted(infos):
            by_dtype.setdefault(infos[rank].dtype, []).append(rank)
        yield entry, sorted(by_dtype.values(), key=lambda ranks: (-len(ranks), ranks))


def _culprits(state: JobState, classes: list[list[int]], entry: Entry) -> tuple[int, ...]:
    """The minority; on a tie those whose dtype is the rarer one among all tensors, else all of them."""
    ranks, tie = minority(classes)
    if not tie:
        return ranks
    usual = Counter(info.dtype for e in state.tensors.entries if e.kind == entry.kind for info in e.infos.values())
    counts = [usual[entry.infos[some[0]].dtype] for some in classes]
    if len(classes) == 2 and counts[0] != counts[1]:
        return tuple(classes[counts.index(min(counts))])
    return ranks


def _of_ranks(culprits: tuple[int, ...], found: list[Unlike]) -> Finding:
    entry, classes = found[0]
    names = [e.name for e, _ in found]
    dtypes = {some[0]: entry.infos[some[0]].dtype for some in classes}
    holding = (f"{words.ranks_text(some)} {words.verb(some, 'holds', 'hold')} {dtypes[some[0]]}" for some in classes)
    said = " and ".join(holding)
    text = f"the ranks hold {_some(names)} in different dtypes: {said}"
    sure = any(e.peers for e, _ in found)
    evidence = tuple(
        Evidence(f"{entry.name} is {entry.infos[r].dtype}", "probe", r) for some in classes for r in some[:2]
    )
    return _finding("ranks", culprits, text, evidence[:4], (*names, *sorted(dtypes.values())),
                    Severity.CRITICAL if sure else Severity.WARNING, 0)  # fmt: skip


def recast(state: JobState) -> dict[int, int]:
    """The ranks whose parameters have changed their dtype, and since which step that was seen."""
    return {rank: step for rank, (step, _) in _facts(state, "dtypes/changed").items()}


def frozen_recast(state: JobState) -> dict[int, int]:
    """Likewise of parameters that no optimizer owns, and of buffers."""
    facts = {**_facts(state, "dtypes/frozen"), **_facts(state, "dtypes/recast")}
    return {rank: step for rank, (step, _) in facts.items()}


def _facts(state: JobState, name: str) -> dict[int, tuple[int, str]]:
    return {r: fact for r in sorted(state.details) if (fact := state.signals.fact(r, name)) is not None}


def _changed(state: JobState) -> Iterator[Finding]:
    if facts := _facts(state, "dtypes/changed"):
        ranks, (step, said) = tuple(facts), next(iter(facts.values()))
        old, new, names = said.split("\t")
        listed = names.split(",")
        text = f"{_some(listed)} were {old} and are {new} since step {step}, in the midst of training"
        evidence = tuple(Evidence(f"{old} before step {s}, {new} then", "probe", r, s) for r, (s, _) in facts.items())
        yield _finding("changed", ranks, text, evidence[:4], (*listed[: MAX_NAMES - 1], new), Severity.WARNING, step)


def _cast(state: JobState, fact: str, what: str) -> Iterator[Finding]:
    """Frozen parameters, or buffers, that some ranks have cast, and others that have gone on since then have not."""
    facts = _facts(state, f"dtypes/{fact}")
    if not facts:
        return
    ranks, (step, said) = tuple(facts), min(facts.values())
    counted = {r: state.signals.series(r, "parameters/owned") for r in state.details if r not in facts}
    others = sorted(r for r, one in counted.items() if one is not None and len(one) and int(one.steps[-1]) >= step)
    if len(others) < len(counted):
        return  # of some it is not known yet
    old, new, names = said.split("\t")
    listed = names.split(",")
    text = f"the {what}{_some(listed)} were {old} and are {new} since a step before {step}"
    text += f", on {words.ranks_text(tuple(others))} they still are {old}" if others else ""
    evidence = tuple(
        Evidence(f"{new} at step {s}, {old} at the count before", "probe", r, s) for r, (s, _) in facts.items()
    )
    # On all of them it may be meant: what is frozen is only read.
    severity = Severity.WARNING if others else Severity.INFO
    yield _finding(fact, ranks, text, evidence[:4], (*listed[: MAX_NAMES - 1], new), severity, step)


_WRONG = {
    "frequencies": "holds frequencies in {dtype}, which rounds them by up to one part in {parts}: at position {parts}"
    " the angle is off by a radian",
    "positions": "counts {count} positions in {dtype}, which has no numbers of their own for those beyond {exact}",
}
_BITS = {"bfloat16": 8, "float16": 11}  # significant


def _buffers(state: JobState) -> Iterator[Finding]:
    found: dict[str, dict[str, tuple[list[int], str]]] = {}
    for rank in sorted(state.details):
        for name, (_, said) in state.signals.facts(rank).items():
            if name.startswith(BUFFER):
                dtype, what, count = said.split("\t")
                told = found.setdefault(what, {}).setdefault(name.removeprefix(BUFFER), ([], f"{dtype}\t{count}"))
                told[0].append(rank)
    for what, by_name in found.items():
        name, (some, said) = next(iter(by_name.items()))
        dtype, count = said.split("\t")
        wrong = _WRONG[what].format(dtype=dtype, count=count, parts=1 << _BITS[dtype], exact=1 << _BITS[dtype])
        ranks = tuple(sorted({rank for told, _ in by_name.values() for rank in told}))
        more = f", and so do {len(by_name) - 1} more" if len(by_name) > 1 else ""
        evidence = (Evidence(f"{name} is a buffer of {count} elements in {dtype}", "probe", some[0]),)
        yield _finding(
            what, ranks, f"the buffer {name} {wrong}{more}", evidence, (*by_name, dtype), Severity.WARNING, 0
        )


def _states(state: JobState) -> Iterator[Finding]:
    """What optimizers keep, and have cast as they loaded it."""
    if facts := _facts(state, "dtypes/state"):
        ranks, (step, said) = tuple(facts), next(iter(facts.values()))
        old, new, names = said.split("\t")
        listed = names.split(",")
        kinds = list(dict.fromkeys(name.rpartition(".")[2] for name in listed))
        text = (
            f"load_state_dict has cast the optimizer's state ({', '.join(kinds[:SHOWN])} of"
            f" {_some([name.rpartition('.')[0] for name in listed if name.endswith(kinds[0])])}) from {old} to {new},"
            f" the dtype of the weights, before step {step}: small steps are rounded away in it"
        )
        evidence = tuple(Evidence(f"{listed[0]} was saved as {old}, and is {new}", "probe", r, s)
                         for r, (s, _) in facts.items())  # fmt: skip
        shown = (*listed[: MAX_NAMES - len(kinds) - 2], *kinds, "optimizer state", new)
        yield _finding("state", ranks, text, evidence[:4], shown, Severity.WARNING, step)


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _finding(
    key: str, ranks: tuple[int, ...], text: str, evidence: tuple[Evidence, ...], names: tuple[str, ...],
    severity: Severity, step: int,
) -> Finding:  # fmt: skip
    cause = Cause(key, text, 0.95, Basis.OBSERVATION, evidence)
    said = words.shortened(f"{words.ranks_text(ranks)}: {text}.")
    return Finding("precision.dtype_mismatch", severity, ranks, said, (cause,), names=names[:MAX_NAMES], step=step,
                   sure=True, goes_on=True, key=f"dtype {key}")  # fmt: skip
