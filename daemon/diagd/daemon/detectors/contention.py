"""Who has the CPU that a rank waits for: other processes, or the job itself, with its data workers or with the rest."""

from collections.abc import Mapping

KEY = "contention"
WORKERS, OVERSUBSCRIBED = "workers", "oversubscribed"
KEYS = (KEY, WORKERS, OVERSUBSCRIBED)  # of the fixes for a rank that waits for a CPU
GROWN_CPUS = 0.2  # who uses less of a CPU more than before, or than elsewhere, has not brought the change
_OTHERS, _WORKERS, _HELPERS, _MAINS = "cpu_others_s", "cpu_workers_s", "cpu_helpers_s", "cpu_mains_s"
_NAMES = {
    _WORKERS: "its data workers", _HELPERS: "its own threads and child processes", _MAINS: "the other ranks",
    _OTHERS: "processes that are not the job's",
}  # fmt: skip


def by_whom(crowd: Mapping[str, float], more: Mapping[str, float]) -> tuple[str, str]:
    """The key of the fix, and words.

    Args:
        crowd: CPUs in use by others than the rank's main thread, of those that it may run on, by who uses them; empty
            where that is not known.
        more: The same above what it was before, or is for other ranks. What has grown is the reason; where nothing
            has, what there is most of.
    """
    if not crowd:
        return KEY, "it waits for a CPU, and who uses it is not known"
    grown = {name: cpus for name, cpus in more.items() if cpus >= GROWN_CPUS}
    used = grown or {name: max(cpus, 0.0) for name, cpus in crowd.items()}
    own = {name: used.get(name, 0.0) for name in (_WORKERS, _HELPERS, _MAINS)}
    if used.get(_OTHERS, 0.0) >= sum(own.values()):
        return KEY, "it waits for a CPU that other processes use"
    most = max(own, key=lambda name: own[name])
    said = f"it waits for a CPU that the job itself uses, most of all {_NAMES[most]}"
    return (WORKERS if most == _WORKERS else OVERSUBSCRIBED), said


def kind(key: str) -> str:
    """Of a cause on the host: that a rank's own data workers take its CPU is a matter of its input."""
    return "slow.data" if key == WORKERS else "slow.host"


def said(crowd: Mapping[str, float]) -> str:
    """The figures, as evidence."""
    parts = ", ".join(f"{_NAMES[name]} {max(crowd.get(name, 0.0), 0.0):.1f}" for name in _NAMES)
    return f"CPUs in use of those that its main thread may run on, beside what it has itself: {parts}"
