"""Of findings that explain each other the deepest is told; those of several ranks that met one fault are one."""

from dataclasses import replace

from diagd.daemon.detectors import elsewhere, outside, slow_finding
from diagd.daemon.detectors.finding import Finding


def together(found: list[Finding]) -> list[Finding]:
    """Findings of several ranks that passed the same operation by, or rest at the same place, as one."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    merged = []
    for finding in found:
        likeness = _likeness(finding)
        if likeness:
            alike.setdefault(likeness, []).append(finding)
        else:
            merged.append(finding)
    for several in alike.values():
        if len(several) == 1:
            merged.append(several[0])
        elif several[0].kind == "hang.rank_missing":
            merged.append(elsewhere.passed_by(several))
        else:
            merged.append(outside.alike(several))
    return merged


_BY_PLACE = frozenset({"hang.rank_blocked", "hang.data_starved", "slow.data", "slow.host", "slow.straggler"})


def _likeness(finding: Finding) -> tuple[object, ...]:
    """Equal for findings that are one fault met by several ranks; empty for those that already speak of all."""
    if finding.key == slow_finding.KEY:
        return ()
    if finding.kind == "hang.rank_missing":
        return finding.kind, finding.group, finding.op_name, finding.op_seq
    if finding.kind in _BY_PLACE and finding.locations:
        frame = finding.locations[0].frame
        return finding.kind, frame.file, frame.function
    if finding.kind == "hang.rank_stopped":
        return finding.kind, finding.causes[0].key
    return ()


# Of findings about the same ranks the earlier in this order is the deeper cause.
_DEPTH = (
    "exit.",
    "hang.collective_mismatch",
    "hang.rank_stopped",
    "hang.store_wait",
    "hang.group_cycle",
    "hang.p2p_unmatched",
    "hang.rank_missing",
    "hang.data_starved",
    "hang.rank_blocked",
    "slow.",
    "hang.all_arrived",
)


# What a rank computes is wrong, whatever else befalls it.
_OF_ITS_OWN = ("precision.", "divergence.", "memory.", "training.", "numerics.")


def _depth(finding: Finding) -> int:
    return next((i for i, kind in enumerate(_DEPTH) if finding.kind.startswith(kind)), len(_DEPTH))


def deepest(found: list[Finding]) -> tuple[Finding, ...]:
    """Drop what a deeper finding explains, and the same finding made twice."""
    kept: list[Finding] = []
    for finding in sorted(found, key=_order):
        number = next((n for n, other in enumerate(kept) if _explains(other, finding)), None)
        if number is None:
            kept.append(finding)
        elif _is_worse(finding, kept[number]):
            kept[number] = replace(kept[number], severity=finding.severity)
    return tuple(sorted(kept, key=lambda f: (f.severity.order, _depth(f), f.ranks)))


def _order(finding: Finding) -> tuple[int, int, int, bool, int, str, tuple[int, ...]]:
    """The deepest first; of two in one group's order the earlier place, after those at which ranks still stand."""
    size, place = len(finding.ranks), finding.op_seq or 0
    return _depth(finding), finding.severity.order, size, finding.goes_on, place, finding.group or "", finding.ranks


def _is_worse(finding: Finding, deeper: Finding) -> bool:
    """Whether the same ranks are worse off than the deeper finding says; a rank that a person holds never is."""
    same = finding.ranks == deeper.ranks and deeper.kind != "hang.rank_stopped"
    return same and finding.severity.order < deeper.severity.order


def _explains(deeper: Finding, other: Finding) -> bool:
    """Whether all that the other speaks of is already among the deeper one's ranks."""
    if (deeper.kind, deeper.key) == (other.kind, other.key):
        return True
    if other.kind.startswith(_OF_ITS_OWN):
        return False
    covered = {*deeper.ranks, *deeper.waiting_ranks}
    if deeper.kind.startswith("exit."):
        return True  # a death explains what the others do after it
    return set(other.ranks) <= covered and _depth(deeper) <= _depth(other)
