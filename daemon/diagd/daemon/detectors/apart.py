"""Replicas, or holders of shards, that are at different steps, or step with different settings of their optimizers."""

from dataclasses import replace
from typing import NamedTuple

from diagd.daemon.detectors import meetings, rates, unstepped_ranks, words
from diagd.daemon.detectors.differing import Parted
from diagd.daemon.detectors.finding import GOES_ON, Basis, Cause, Evidence, Finding, Severity
from diagd.daemon.detectors.ledger import minority
from diagd.daemon.detectors.limits import limits_apart, limits_finding
from diagd.daemon.detectors.local_clip import shards_of
from diagd.daemon.detectors.meetings import Ahead
from diagd.daemon.detectors.models import model_of
from diagd.daemon.detectors.rates import Apart
from diagd.daemon.detectors.replicas import replicas_of
from diagd.daemon.detectors.scales import scales_apart, scales_finding
from diagd.daemon.detectors.turn_taking import take_turns
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import NONE, Entry
from diagd.daemon.steps import since_text

SHOWS_IN = ("divergence.parameter", "divergence.gradient")  # sooner than it is known what it comes of
ENGINE = "engine"  # DeepSpeed's: each of its ranks may update a part of the weights, for all
BEGUN = 2  # steps: what is equal that early may be so because all began alike


class Told(NamedTuple):
    """What was found of some ranks, and since which step it explains that their tensors differ."""

    finding: Finding
    ranks: tuple[int, ...]
    since: int

    def explains(self, one: Parted) -> bool:
        """Whether the tensor differs because of it."""
        ranks = {rank for alike in one.classes for rank in alike}
        return ranks <= set(self.ranks) and one.since >= self.since


def apart(state: JobState) -> list[Told]:
    """One for each set of ranks that belong together: the steps first, as settings go by them."""
    if (idle := _unstepped(state)) is not None:
        return [idle]
    together = _together(state)
    found = [_steps(state, ranks) or _of_gradients(state, ranks) or _settings(state, ranks) for ranks in together]
    found += [_steps(state, ranks) for ranks in _once_together(state) if ranks not in together]
    return [told for told in found if told is not None]


def _unstepped(state: JobState) -> Told | None:
    """Ranks that no longer step at all: of these nothing else can be compared."""
    sets = {replicas.ranks for replicas in replicas_of(state) if replicas.wrapper}
    sets |= {shards.ranks for shards in shards_of(state)}
    for ranks in sorted(sets):
        found = unstepped_ranks.stopped(state, ranks)
        if found is not None:
            others = words.ranks_text(set(ranks) - set(found.ranks))
            text = (
                f"{words.ranks_text(found.ranks)} {words.verb(found.ranks, 'has', 'have')} made no optimizer step since"
                f" step {found.after}, and {others} {found.missing}, though all go through the same backward passes"
            )
            said = f"{found.met} collectives of all ranks entered since its last step {found.after}"
            why = "optimizer.step() is no longer called there: a branch, a filter of losses or an early stop that the"
            cause = Cause("unstepped", f"{why} others do not take", 0.9, Basis.OBSERVATION,
                          (Evidence(said, "probe", found.ranks[0], found.after),))  # fmt: skip
            text += ". The run goes on, with weights of different steps"
            step = found.after + 1
            return Told(_finding("divergence.step", found.ranks, text, cause, ("optimizer.step",), step), ranks, step)
    return None


def _together(state: JobState) -> list[tuple[int, ...]]:
    """Ranks that hold shards of the same tensors, and those whose weights were equal and have parted."""
    sets = {shards.ranks for shards in shards_of(state)}
    sets |= {replicas.ranks for replicas in replicas_of(state) if replicas.wrapper == ENGINE}
    # Once is enough: what they step with, or by how many steps they are apart, is a second source.
    weights = [e for e in state.tensors.entries if e.kind == "parameter" and e.agreement.unequal]
    reduced = _last_reduced(state) if weights else {}
    for entry in weights:
        owned, seen = all(info.owned for info in entry.infos.values()), entry.agreement
        if owned and seen.last_equal != NONE and (entry.peers or reduced.get(_kin(entry), NONE) > seen.first_unequal):
            sets.add(tuple(sorted(rank for alike in entry.agreement.classes for rank in alike)))
    return sorted(sets | _updating_for_each_other(state))


def _once_together(state: JobState) -> list[tuple[int, ...]]:
    """Ranks whose gradients were equal in the midst of training, and whose weights were until they parted.

    Whether gradients are equal still cannot be seen of ranks that are at different steps.
    """
    reduced = {
        (e.name.partition(".")[0], tuple(sorted(e.infos)))
        for e in state.tensors.entries
        if e.kind == "gradient" and e.agreement.last_equal > BEGUN
    }
    weights = [e for e in state.tensors.entries if e.kind == "parameter" and e.agreement.unequal]
    return sorted({
        ranks for e in weights
        if e.agreement.last_equal > BEGUN and all(info.owned for info in e.infos.values())
        and (e.name.partition(".")[0], ranks := tuple(sorted(e.infos))) in reduced
    })  # fmt: skip


def _updating_for_each_other(state: JobState) -> set[tuple[int, ...]]:
    """Replicas of which each keeps the optimizer's state of a part, and updates that for all: they stay equal."""
    entries = state.tensors.entries
    parts = {e.name.rpartition(".")[0] for e in entries if e.kind == "state" and 0 < len(e.infos) < len(e.peers)}
    return {e.peers for e in entries if e.kind == "parameter" and e.name in parts}


def _last_reduced(state: JobState) -> dict[tuple[str, frozenset[int]], int]:
    """The last step in which gradients of a model were equal on all of its ranks.

    Where that is after weights have parted, they are reduced, though nothing declares the ranks replicas. Gradients of
    the step in which weights parted were computed before: of the same model and the same samples they are equal, though
    each rank trains for itself.
    """
    last: dict[tuple[str, frozenset[int]], int] = {}
    for entry in state.tensors.entries:
        if entry.kind == "gradient":
            last[_kin(entry)] = max(last.get(_kin(entry), NONE), entry.agreement.last_equal)
    return last


def _kin(entry: Entry) -> tuple[str, frozenset[int]]:
    return model_of(entry), frozenset(entry.infos)


def _steps(state: JobState, ranks: tuple[int, ...]) -> Told | None:
    found = meetings.ahead(state, ranks)
    if found is None:
        return None
    classes: dict[int, list[int]] = {}
    for rank, steps in found.steps.items():
        classes.setdefault(steps, []).append(rank)
    odd, tie = minority(sorted(classes.values(), key=lambda alike: (-len(alike), alike)))
    if not odd:
        return None
    # Who has stepped shows in the weights first: the collectives tell it only once several steps are between them.
    since = min([found.since, *_parted_at(state, ranks, found.equal_until)])
    text = _steps_text(found, odd, tie, since)
    when = f"side by side until step {found.equal_until}" if found.equal_until else "apart from the first steps on"
    said = f"collectives of all ranks by each step: {when}; about {found.per_step:.3g} in a step"
    cause = Cause("steps", "some ranks have made optimizer steps that the others have not, or left some out", 0.9,
                  Basis.OBSERVATION, (Evidence(said, "probe", odd[0], found.since),))  # fmt: skip
    names = ("optimizer.step", *_first_parted(state, ranks))
    finding = _finding("divergence.step", odd, text, cause, names, since)
    if take_turns(state, ranks):
        finding = replace(finding, severity=Severity.INFO)
    return Told(finding, ranks, min(found.equal_until + 1, since))


def _parted_at(state: JobState, ranks: tuple[int, ...], until: int) -> list[int]:
    """The steps up to `until` at which trained weights that were equal on these ranks were first found to differ."""
    weights = [e.agreement for e in state.tensors.entries if e.kind == "parameter" and set(e.infos) == set(ranks)]
    parted = (seen for seen in weights if seen.unequal and 0 < seen.last_equal < seen.first_unequal)
    return [seen.first_unequal for seen in parted if seen.first_unequal <= until]


def _first_parted(state: JobState, ranks: tuple[int, ...]) -> list[str]:
    """The weight that was first found to differ: of several optimizers it may tell whose steps are not the same."""
    weights = [e for e in state.tensors.entries if e.kind == "parameter" and set(e.infos) == set(ranks)]
    parted = [e for e in weights if e.agreement.unequal and e.agreement.first_unequal > 0]
    return [min(parted, key=lambda e: e.agreement.first_unequal).name] if parted else []


def _steps_text(found: Ahead, odd: tuple[int, ...], tie: bool, since: int) -> str:
    if tie:
        least = min(found.steps.values())
        counts = ", ".join(f"rank {rank} {steps - least:+d}" for rank, steps in found.steps.items())
        text = (
            f"{words.ranks_text(odd)} have made different numbers of optimizer steps by the same collective ({counts})"
        )
    else:
        by = found.steps[odd[0]]
        text = f"{words.ranks_text(odd)} {words.verb(odd, 'has', 'have')} made {abs(by)} optimizer steps"
        text += f" {'more' if by > 0 else 'fewer'} than the others"
    return f"{text}, since about step {since}. The run goes on, with weights that are of different steps"


def _of_gradients(state: JobState, ranks: tuple[int, ...]) -> Told | None:
    """Scalers' factors, or norms to which gradients are clipped, that differed no later than the weights.

    Ranks that are apart may come to others by that.
    """
    scales, limits = scales_apart(state, ranks), limits_apart(state, ranks)
    found = scales or limits
    if found is None:
        return None
    weights = (e.agreement for e in state.tensors.entries if e.kind == "parameter" and set(e.infos) == set(ranks))
    parted = [seen.first_unequal for seen in weights if seen.unequal]
    if parted and min(parted) < found.may_since:
        return None
    finding = scales_finding(scales) if scales is not None else limits_finding(limits) if limits is not None else None
    return Told(finding, ranks, found.may_since) if finding is not None else None


def _settings(state: JobState, ranks: tuple[int, ...]) -> Told | None:
    found = rates.apart(state, ranks) or _earlier(state, ranks)
    until = meetings.together_until(state, ranks) if found is not None else None
    if found is None or (until is not None and until < found.since):
        return None  # of another step they may be another step's
    odd, tie = minority(found.classes)
    kind = "divergence.step" if found.schedule else "divergence.optimizer"
    cause = Cause("schedule" if found.schedule else "settings", _why(found), 0.9, Basis.OBSERVATION,
                  (Evidence(_values(found), "probe", odd[0], found.since),))  # fmt: skip
    other = "" if tie else f" than {words.ranks_text(set(ranks) - set(odd))}"
    text = (
        f"{words.ranks_text(odd)} {words.verb(odd, 'steps', 'step')} with {'different' if tie else 'another'}"
        f" {found.name}{'s' if tie else ''}{other} (parameter group {found.group}: {_values(found)}),"
        f" {since_text(found.may_since, found.since)}{GOES_ON}, with updates that differ between ranks"
    )
    names = (found.name, f"param_groups[{found.group}]", *(("lr_scheduler",) if found.schedule else ()))
    return Told(_finding(kind, odd, text, cause, names, found.since), ranks, found.may_since)


def _earlier(state: JobState, ranks: tuple[int, ...]) -> Apart | None:
    """Settings that are equal again, and differed when weights parted that had been equal."""
    weights = (e.agreement for e in state.tensors.entries if e.kind == "parameter" and set(e.infos) == set(ranks))
    parted = [seen.first_unequal for seen in weights if seen.unequal and seen.last_equal != NONE]
    found = rates.apart(state, ranks, ever=True) if parted else None
    return found if found is not None and any(step >= found.may_since for step in parted) else None


def _why(found: Apart) -> str:
    if not found.schedule:
        return "the optimizers of the ranks were given different settings"
    if found.stays:
        whose = f"{words.ranks_text(found.stays)} {words.verb(found.stays, 'keeps', 'keep')} the rate of before"
        return f"{whose} while that of the others goes on to change: the scheduler is stepped on some ranks alone"
    why = "the learning rates were equal and go the same way, but not at the same steps: schedulers were not stepped"
    return why + " alike, or not made for the same number of steps"


def _values(found: Apart) -> str:
    return ", ".join(f"{found.values[alike[0]]} on {words.ranks_text(alike)}" for alike in found.classes[:4])


def _finding(kind: str, ranks: tuple[int, ...], text: str, cause: Cause, names: tuple[str, ...], step: int) -> Finding:
    return Finding(
        kind, Severity.CRITICAL, ranks, words.shortened(text), (cause,), names=names, step=step, sure=True,
        goes_on=True, key=cause.key, explains=SHOWS_IN,
    )  # fmt: skip
