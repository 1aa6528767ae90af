"""A group on which more than one thread of a rank communicates: the order of its operations is left to chance."""

from collections.abc import Iterable
from dataclasses import replace

from diagd.daemon.detectors.finding import Basis, Cause, Evidence, Finding
from diagd.daemon.detectors.scene import Scene

_ENGINES = "Dummy-"  # what Python calls threads that it has not made, as those of the autograd engine: all work in turn
_MOST = 4  # ranks of whom it is shown
_BY_ORDER = ("path", "arguments")  # the keys of causes that another order of the operations may have, too


def with_sharers(scene: Scene, finding: Finding) -> Finding:
    """Ranks that met in different operations, with the threads that left it to chance, where there are such."""
    if finding.kind != "hang.collective_mismatch" or finding.causes[0].key not in _BY_ORDER:
        return finding
    everyone = sorted({*finding.ranks, *finding.waiting_ranks})
    for group in (finding.group,) if finding.group else _groups(scene, everyone):
        if (cause := _shared(scene, group, everyone)) is not None:
            evidence = (*finding.causes[0].evidence, *cause.evidence)
            return replace(finding, causes=(replace(cause, evidence=evidence), *finding.causes[1:]))
    return finding


def _groups(scene: Scene, ranks: Iterable[int]) -> list[str]:
    return sorted({group.name for rank in ranks for group in scene.state.detail(rank).groups})


def _shared(scene: Scene, group: str, ranks: Iterable[int]) -> Cause | None:
    """None where one thread of each rank, and of all the same, has issued what is known of the group."""
    found = {rank: threads for rank in ranks if (threads := _threads(scene, group, rank))}
    names = sorted({name for threads in found.values() for name in threads})  # "the main thread" before all others
    if len(names) < 2:
        return None
    told = [
        Evidence(f"{' and '.join(threads)} issued operations of group {group}", "probe", rank)
        for rank, threads in found.items()
    ]
    text = f"{' and '.join(names)} communicate on the same group: chance orders their operations, and ranks meet in"
    return Cause("threads", f"{text} other ones", 0.85, Basis.OBSERVATION, tuple(told[:_MOST]))


def _threads(scene: Scene, group: str, rank: int) -> list[str]:
    """The threads that issued the rank's operations there, as far as they have names; the main one first."""
    detail = scene.state.detail(rank)
    ops = [op for op in (*detail.history, *detail.operations) if op.group == group and not op.p2p]
    main = ["the main thread"] * any(op.thread == detail.pid for op in ops)  # Linux: its id is the process's
    return main + sorted({f"thread {op.thread_name!r}" for op in ops if _is_own(op.thread_name)})


def _is_own(name: str) -> bool:
    return bool(name) and not name.startswith(_ENGINES)
