"""Two ledgers side by side, of running jobs or of checkpoints: which tensors hold the same, bit for bit.

What matters is what a tensor holds, and not in which file or on which ranks: its sum is of the whole, however it is
split. Where a ledger has none of it (diagd.ledger/1, or nobody has asked the ranks), there are digests of what each
rank holds, by steps: such of parts are compared only with the same parts. A ledger is judged by the step that it was
saved for, or by one that the person names, and by no other that it happens to hold.
"""

from dataclasses import dataclass, field

from diagd.daemon.analyze.ledger_tensors import Tensor, of_first_rank
from diagd.daemon.analyze.moments import after, of_moment, sampled_after, shared_steps
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
    other_moments: bool = False  # hardly any that trains is equal, and the steps are not known to be the same
    unheld: bool = False  # not all is held after the step that was named
    shared: list[int] = field(default_factory=list)  # steps after which both hold all that was not compared

    @property
    def same(self) -> bool:
        """Nothing differs and nothing is missing."""
        return not self.different and not self.missing

    @property
    def kind(self) -> str | None:
        """The kind of what was found; None where all that could be compared is equal."""
        return KIND if self.different else None


def compare(left: list[Tensor], right: list[Tensor], step: int | None = None) -> Comparison:
    """Compare all that the two have in common by name, and say what they have not.

    Args:
        left: The first.
        right: The second.
        step: After which a ledger is to be judged; None: the one that it was saved for.
    """
    found = Comparison()
    left, right = of_moment(left, step, "the first"), of_moment(right, step, "the second")
    pairs, only_left, only_right = _pairs(left, right)
    known_at, one_moment = _steps_of_file(pairs), _is_one_moment(pairs)
    for one, other in pairs:
        verdict, why = _judged(one, other, known_at, one_moment)
        getattr(found, verdict).append((one.name, why))
        if verdict == "different":
            found.apart.append((one, other))
    found.other_moments = not one_moment
    found.unheld = step is not None and not all(tensor.digests or tensor.sums for pair in pairs for tensor in pair)
    found.shared = shared_steps(pairs, {name for name, _ in found.unknown})
    _note_unpaired(found, left, right, only_left, only_right)
    return found


def _pairs(left: list[Tensor], right: list[Tensor]) -> tuple[list[Pair], list[Tensor], list[Tensor]]:
    pairs, only_left, only_right = paired(left, right)
    more = by_numbers(left, only_right, only_left) or by_numbers(right, only_left, only_right)
    taken = {id(tensor) for pair in more for tensor in pair}
    only_left, only_right = ([t for t in side if id(t) not in taken] for side in (only_left, only_right))
    return pairs + more, only_left, only_right


def _note_unpaired(
    found: Comparison, left: list[Tensor], right: list[Tensor], only_left: list[Tensor], only_right: list[Tensor]
) -> None:
    for rest, others, where in ((only_left, right, "the first"), (only_right, left, "the second")):
        files = any(tensor.kind == "file" for tensor in others)
        for tensor in rest:
            if files and tensor.kind in ("state", "buffer"):
                found.unknown.append((tensor.name, f"a {tensor.kind}, which the checkpoint does not hold by this name"))
            elif is_numbered(tensor) and any(other.kind == "state" for other in others):
                found.unknown.append((tensor.name, "an optimizer's state by a number, and whose that is is not known"))
            else:
                found.missing.append((tensor.name, f"only in {where}"))


def _steps_of_file(pairs: list[tuple[Tensor, Tensor]]) -> set[int]:
    """After which steps of the job tensors were what a checkpoint holds: of those it may be."""
    found: set[int] = set()
    for one, other in pairs:
        file, live = (one, other) if None in one.digests else (other, one)
        if None in file.digests and None not in live.digests:
            content = set(file.digests[None])
            held = {**live.elsewhen, **live.digests}
            alike = {step for step, told in held.items() if step is not None and set(told) == content}
            found |= alike if len(alike) < len(held) else set()  # not by what never changes
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
        return _by_sums(one, other, one_moment)
    if one.placement != other.placement and not (one.whole and other.whole):
        return "unknown", one.why or other.why or f"split otherwise: {one.placement} and {other.placement}"
    if not one.digests or not other.digests:
        return "unknown", one.why or other.why or _no_digest(one, other)
    if None in one.digests and None in other.digests:
        alike = set(one.digests[None]) == set(other.digests[None])
        return ("equal", "") if alike else ("different", "other content")
    if None in one.digests or None in other.digests:
        file, live = (one, other) if None in one.digests else (other, one)
        return _against_file(file, live, known_at)
    return _by_steps(one, other)


def _by_sums(one: Tensor, other: Tensor, one_moment: bool) -> tuple[str, str]:
    """Of all of it on each side; of the job's one step."""
    mine, theirs = set(one.summed), set(other.summed)
    steps = [tensor.step for tensor in (one, other) if not tensor.of_file]
    when = " and ".join(dict.fromkeys(after(step or 0) for step in steps))
    if mine == theirs:
        return "equal", f"as {when}"
    if one.sent_out or other.sent_out:
        roots = [
            next(iter(tensor.summed)) if tensor.of_file else of_first_rank(tensor.summed) for tensor in (one, other)
        ]
        if roots[0] is not None and roots[0] == roots[1]:
            return "equal", _as_sent_out(when)
    held = one.summed if len(mine) > len(theirs) else other.summed
    odd = [ranks for digest, ranks in held.items() if digest not in (mine & theirs)]
    if mine & theirs and len(held) > 1:
        return "different", f"on ranks {','.join(odd)}, {when}"
    if one_moment:
        return "different", when
    if one.of_file or other.of_file:
        file, live = (one, other) if one.of_file else (other, one)
        return "unknown", _as_elsewhen(file, live) or (
            f"hardly any that trains is as {when}: the two seem to be of other moments of the training"
        )
    first, second = map(after, (one.step or 0, other.step or 0))
    return "unknown", (
        f"the first tells what was held {first}, the second {second}, and hardly any that trains is equal: "
        "they seem to be of other moments of the training"
    )


def _as_sent_out(when: str) -> str:
    return f"as rank 0 holds it {when}: DDP gives all ranks that before each forward pass, which changes theirs"


def _as_elsewhen(file: Tensor, live: Tensor) -> str:
    """That it is what ranks held after another step than the ledger is of; empty where that is not known."""
    content, judged = set(file.digests[None]), next(iter(live.sums or live.digests), None)
    steps = [step for step, told in live.elsewhen.items() if live.whole and set(told) == content]
    if not steps or judged is None:
        return ""
    return f"the file holds it as it was {after(steps[0] or 0)}, and the ledger is of what was held {after(judged)}"


def _against_file(file: Tensor, live: Tensor, known_at: set[int]) -> tuple[str, str]:
    """Each tensor is digested after some steps alone: what it held after others is not known."""
    content = set(file.digests[None])
    steps = [step for step, told in live.digests.items() if set(told) == content]
    if steps:
        return "equal", f"as {after(steps[0] or 0)}"
    some = [step for step, told in live.digests.items() if content & set(told)]
    if some and live.sent_out and of_first_rank(live.digests[some[0]]) in content:
        return "equal", _as_sent_out(after(some[0] or 0))
    if some:
        ranks = [ranks for digest, ranks in live.digests[some[0]].items() if digest not in content]
        return "different", f"on ranks {','.join(ranks)}, {after(some[0] or 0)}"
    told = {frozenset(ranks) for ranks in live.digests.values()}
    if len(told) == 1 and len(live.digests) > 1:
        return "different", f"it is the same {sampled_after(live.digests)}, and another in the file"
    if there := sorted(step for step in known_at if step in live.digests):
        return "different", f"{after(there[0])}, of which others in the file are"
    if elsewhen := _as_elsewhen(file, live):
        return "unknown", elsewhen
    when = f"{after(min(known_at))}, of which the file is" if known_at else "after the step of which the file may be"
    return "unknown", f"it was not digested {when}; it is not what was held {sampled_after(live.digests)}"


def _by_steps(one: Tensor, other: Tensor) -> tuple[str, str]:
    common = sorted(step for step in one.digests if step is not None and step in other.digests)
    if not common:
        return "unknown", _no_digest(one, other)
    for step in common:
        mine, theirs = one.digests[step], other.digests[step]
        alike = set(mine) == set(theirs) if one.whole and other.whole else mine == theirs
        if not alike:
            return "different", after(step)
    whole = f"as at all that both sampled, from {after(common[0])} to {after(common[-1])}"
    return "equal", whole if len(common) > 1 else f"as {after(common[0])}"


def _no_digest(one: Tensor, other: Tensor) -> str:
    """Why two of which no digests after the same step are there cannot be compared."""
    held = [{*tensor.digests, *tensor.sums} for tensor in (one, other)]
    if all(held) and not held[0] & held[1] and None not in held[0] | held[1]:
        return f"the first holds it {sampled_after(held[0])}, the second {sampled_after(held[1])}"
    if one.whole and other.whole:
        return "no digest: it was not sampled yet"
    return f"no digest: {other.placement if one.whole else one.placement}"


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
