"""Two ledgers side by side, of running jobs or of checkpoints: which tensors hold the same, bit for bit.

A digest is of a whole tensor, so what matters is what it holds and not in which file or on which rank. Digests of the
parts of a split tensor do not add up to the whole's: parts are compared only with the same parts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from diagd.daemon.analyze.numbered import by_numbers, is_numbered

SCHEMA = "diagd.ledger/1"
WHOLE = ("plain", "ddp", "fsdp NO_SHARD")  # placements under which each rank holds all of a tensor
_COMMON = 64  # names that end alike and are still looked at as pairs


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a ledger; digests by step (None: of a checkpoint) and rank ranges."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    placement: str = "plain"
    digests: Mapping[int | None, Mapping[str, str]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether what is digested is all of it."""
        return self.placement.startswith(WHOLE) or set(self.placement.removeprefix("dtensor ").split(", ")) == {"R"}


@dataclass(slots=True)
class Comparison:
    """What the two hold; each with its reason where there is one."""

    equal: list[tuple[str, str]] = field(default_factory=list)
    different: list[tuple[str, str]] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)  # in one of them alone
    unknown: list[tuple[str, str]] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Nothing differs and nothing is missing."""
        return not self.different and not self.missing


def tensors_of(document: Mapping[str, Any]) -> list[Tensor]:
    """Those of a saved ledger.

    Raises:
        ValueError: It is none, or of another version.
    """
    if document.get("schema") != SCHEMA or not isinstance(document.get("tensors"), list):
        raise ValueError(f"expected a ledger of the form {SCHEMA}")
    try:
        return [
            Tensor(
                one["name"], one["kind"], one["dtype"], tuple(one["shape"]), one["placement"],
                {int(step): dict(told) for step, told in one["digests"].items()},
            )
            for one in document["tensors"]
        ]  # fmt: skip
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"the ledger is damaged: {exc!r}") from exc


def of_file(name: str, dtype: str, shape: Iterable[int], digest: str) -> Tensor:
    """A tensor of a checkpoint."""
    return Tensor(name, "file", dtype, tuple(shape), "plain", {None: {digest: ""}})


def compare(left: list[Tensor], right: list[Tensor]) -> Comparison:
    """Compare all that the two have in common by name, and say what they have not."""
    found = Comparison()
    pairs, only_left, only_right = paired(left, right)
    more = by_numbers(left, only_right, only_left) or by_numbers(right, only_left, only_right)
    taken = {id(tensor) for pair in more for tensor in pair}
    only_left, only_right = ([t for t in side if id(t) not in taken] for side in (only_left, only_right))
    pairs += more
    known_at = _steps_of_file(pairs)
    for one, other in pairs:
        verdict, why = _judged(one, other, known_at)
        getattr(found, verdict).append((one.name, why))
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


def paired(left: list[Tensor], right: list[Tensor]) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor], list[Tensor]]:
    """Tensors of the same name; then, again and again, those that differ in the prefixes that fit most of them."""
    pairs: list[tuple[Tensor, Tensor]] = []
    prefixes: tuple[str, str] | None = ("", "")
    while prefixes is not None:
        by_name = {other.name.removeprefix(prefixes[1]): other for other in right if other.name.startswith(prefixes[1])}
        fit = [
            (one, other)
            for one in left
            if one.name.startswith(prefixes[0]) and (other := by_name.get(one.name.removeprefix(prefixes[0])))
        ]
        pairs += fit
        taken = {id(tensor) for pair in fit for tensor in pair}
        left, right = ([t for t in side if id(t) not in taken] for side in (left, right))
        prefixes = _best_prefixes(left, right)
    return pairs, left, right


def _best_prefixes(left: list[Tensor], right: list[Tensor]) -> tuple[str, str] | None:
    ends: dict[str, list[str]] = {}
    for other in right:
        for prefix, end in _ends(other.name):
            ends.setdefault(end, []).append(prefix)
    votes: Counter[tuple[str, str]] = Counter()
    for one in left:
        for prefix, end in _ends(one.name):
            others = ends.get(end, ())
            if len(others) <= _COMMON:
                # head.weight is not tail.weight, but may be weight.
                votes.update((prefix, theirs) for theirs in others if "." in end or not (prefix and theirs))
    # Of those that fit as many, the shortest: the rest of a name is then the longest.
    best = min(votes.items(), key=lambda vote: (-vote[1], len(vote[0][0]) + len(vote[0][1]), vote[0]), default=None)
    return best[0] if best is not None else None


def _ends(name: str) -> Iterator[tuple[str, str]]:
    """Each way to part a dotted name into a prefix and the rest."""
    parts = name.split(".")
    for count in range(len(parts)):
        prefix = "".join(f"{part}." for part in parts[:count])
        yield prefix, name.removeprefix(prefix)


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


def _judged(one: Tensor, other: Tensor, known_at: set[int]) -> tuple[str, str]:
    """Which list of a Comparison the pair belongs to, and why."""
    if (one.dtype, one.shape) != (other.dtype, other.shape) and one.whole and other.whole:
        return "different", f"{_form(one)} and {_form(other)}"
    if one.placement != other.placement and not (one.whole and other.whole):
        return "unknown", f"split otherwise: {one.placement} and {other.placement}"
    if not one.digests or not other.digests:
        return "unknown", f"no digest: {one.placement if not one.whole else 'it was not sampled yet'}"
    if None in one.digests and None in other.digests:
        alike = set(one.digests[None]) == set(other.digests[None])
        return ("equal", "") if alike else ("different", "other content")
    if None in one.digests or None in other.digests:
        file, live = (one, other) if None in one.digests else (other, one)
        return _against_file(set(file.digests[None]), live, known_at)
    return _by_steps(one, other)


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


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
