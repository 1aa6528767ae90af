"""Two ledgers side by side, of running jobs or of checkpoints: which tensors hold the same, bit for bit.

What matters is what a tensor holds, and not in which file or on which ranks: its sum is of the whole, however it is
split. Where a ledger has none of it (diagd.ledger/1, or nobody has asked the ranks), there are digests of what each
rank holds, by steps: such of parts are compared only with the same parts.
"""

from dataclasses import dataclass, field

from diagd.daemon.analyze.ledger_tensors import Tensor
from diagd.daemon.analyze.numbered import by_numbers, is_numbered
from diagd.daemon.analyze.pairing import Pair, paired

KIND = "divergence.checkpoint"
_COUNTER = ".step"  # how often an optimizer has stepped
_SOME = 4  # of the trained tensors one in so many has to be equal, for all to be of one moment: some may never change


@dataclass(slots=True)
class Comparison:
    """What the two hold; each with its reason where there is one."""

    equal: list[tuple[str, str]] = field(default_factory=list)
    different: list[tuple[str, str]] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)  # in one of them alone
    unknown: list[tuple[str, str]] = field(default_factory=list)
    apart: list[Pair] = field(default_factory=list)  # those of `different`, in the same order

    @property
    def same(self) -> bool:
        """Nothing differs and nothing is missing."""
        return not self.different and not self.missing

    @property
    def kind(self) -> str | None:
        """The kind of what was found; None where all that could be compared is equal."""
        return KIND if self.different else None


def compare(left: list[Tensor], right: list[Tensor]) -> Comparison:
    """Compare all that the two have in common by name, and say what they have not."""
    found = Comparison()
    pairs, only_left, only_right = paired(left, right)
    more = by_numbers(left, only_right, only_left) or by_numbers(right, only_left, only_right)
    taken = {id(tensor) for pair in more for tensor in pair}
    only_left, only_right = ([t for t in side if id(t) not in taken] for side in (only_left, only_right))
    pairs += more
    known_at, one_moment = _steps_of_file(pairs), _is_one_moment(pairs)
    for one, other in pairs:
        verdict, why = _judged(one, other, known_at, one_moment)
        getattr(found, verdict).append((one.name, why))
        if verdict == "different":
            found.apart.append((one, other))
    for rest, others, where in ((only_left, right, "the first"), (only_right, left, "the second")):
        files = any(tensor.kind == "file" for tensor in others)
        for tensor in rest:
            if files and tensor.kind in ("state", "buffer"):
                found.unknown.append((tensor.name, f"a {tensor.kind}, which the checkpoint does not hold by this name"))
            elif is_numbered(tensor) and any(other.kind == "state" for other in others):
                found.unknown.append((tensor.name, "an optimizer's state by a number, and whose that is is not known"))
            else:
                found.missing.append((tensor.name, f"only in {where}"))
    return found


def _steps_of_file(pairs: list[tuple[Tensor, Tensor]]) -> set[int]:
    """After which steps of the job tensors were what a checkpoint holds: of those it may be."""
    found: set[int] = set()
    for one, other in pairs:
        file, live = (one, other) if None in one.digests else (other, one)
        if None in file.digests and None not in live.digests:
            content = set(file.digests[None])
            alike = {step for step, told in live.digests.items() if step is not None and set(told) == content}
            found |= alike if len(alike) < len(live.digests) else set()  # not by what never changes
    return found


def _is_one_moment(pairs: list[Pair]) -> bool:
    """Whether the sums are of one moment of a training, so that what is not equal differs: by what changes with it."""
    told = [(one, other) for one, other in pairs if one.sums and other.sums and (one.trained or other.trained)]
    if all(one.step == other.step for one, other in told):
        return True
    alike = [one.name for one, other in told if set(one.summed) == set(other.summed)]
    return any(name.endswith(_COUNTER) for name in alike) or _SOME * len(alike) >= len(told)


def _judged(one: Tensor, other: Tensor, known_at: set[int], one_moment: bool) -> tuple[str, str]:
    """Which list of a Comparison the pair belongs to, and why."""
    summed = bool(one.sums and other.sums)
    if (one.dtype, one.shape) != (other.dtype, other.shape) and (summed or (one.whole and other.whole)):
        return "different", f"{_form(one)} and {_form(other)}"
    if summed and not (one.of_file and other.of_file):
        verdict, why = _by_sums(one, other, one_moment)
        if verdict != "unknown" or not (one.digests and other.digests and one.whole and other.whole):
            return verdict, why
    if one.placement != other.placement and not (one.whole and other.whole):
        return "unknown", one.why or other.why or f"split otherwise: {one.placement} and {other.placement}"
    if not one.digests or not other.digests:
        why = f"no digest: {'it was not sampled yet' if one.whole and other.whole else _split(one, other)}"
        return "unknown", one.why or other.why or why
    if None in one.digests and None in other.digests:
        alike = set(one.digests[None]) == set(other.digests[None])
        return ("equal", "") if alike else ("different", "other content")
    if None in one.digests or None in other.digests:
        file, live = (one, other) if None in one.digests else (other, one)
        return _against_file(set(file.digests[None]), live, known_at)
    return _by_steps(one, other)


def _by_sums(one: Tensor, other: Tensor, one_moment: bool) -> tuple[str, str]:
    """Of all of it on each side; of the job's one step."""
    mine, theirs = set(one.summed), set(other.summed)
    steps = [tensor.step for tensor in (one, other) if not tensor.of_file]
    when = " and ".join(dict.fromkeys(_after(step or 0) for step in steps))
    if mine == theirs:
        return "equal", f"as {when}"
    held = one.summed if len(mine) > len(theirs) else other.summed
    odd = [ranks for digest, ranks in held.items() if digest not in (mine & theirs)]
    if mine & theirs and len(held) > 1:
        return "different", f"on ranks {','.join(odd)}, {when}"
    if one_moment:
        return "different", when
    return "unknown", f"hardly any that trains is as {when}: the two seem to be of other moments of the training"


def _against_file(content: set[str], live: Tensor, known_at: set[int]) -> tuple[str, str]:
    """Each tensor is digested after some steps alone: what it held after others is not known."""
    steps = [step for step, told in live.digests.items() if set(told) == content]
    if steps:
        return "equal", f"as {_after(steps[0] or 0)}"
    some = [step for step, told in live.digests.items() if content & set(told)]
    if some:
        ranks = [ranks for digest, ranks in live.digests[some[0]].items() if digest not in content]
        return "different", f"on ranks {','.join(ranks)}, after step {some[0]}"
    told = {frozenset(ranks) for ranks in live.digests.values()}
    if len(told) == 1 and len(live.digests) > 1:
        return "different", f"it is the same after each of the steps {', '.join(map(str, live.digests))}, and another"
    if there := sorted(step for step in known_at if step in live.digests):
        return "different", f"{_after(there[0])}, of which others in the file are"
    when = f"{_after(min(known_at))}, of which the file is" if known_at else "after the step of which the file may be"
    return "unknown", f"it was not digested {when}; it is none of those after steps {', '.join(map(str, live.digests))}"


def _after(step: int) -> str:
    return f"after step {step}" if step else "before the first step"


def _by_steps(one: Tensor, other: Tensor) -> tuple[str, str]:
    common = [step for step in one.digests if step in other.digests]
    if not common:
        return "unknown", "sampled after other steps"
    for step in common:
        mine, theirs = one.digests[step], other.digests[step]
        alike = set(mine) == set(theirs) if one.whole and other.whole else mine == theirs
        if not alike:
            return "different", f"after step {step}"
    return "equal", ""


def _split(one: Tensor, other: Tensor) -> str:
    return other.placement if one.whole else one.placement


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
