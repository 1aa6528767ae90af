"""What the self-test tries: each fault with the verdict that it must lead to, and a job without one."""

from dataclasses import dataclass

HANG_AFTER_S = 5.0
_FAULT_STEP = 40  # after a second of training: later than all warm-up
_MANY = 4000  # steps: more than there is time for
_CULPRIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One small job.

    Attributes:
        name: The fault's, or `clean`.
        fault: As --inject takes it; empty: none, and nothing may be said.
        kind: The verdict's.
        severity: The least one that is a verdict.
        alone: It goes by times, which another job beside it would change.
        torchrun: Started by that; else by a script that forks its ranks, which costs one import of torch for all.
    """

    name: str
    fault: str = ""
    kind: str = ""
    severity: str = "critical"
    ranks: int = 3
    steps: int = _MANY
    alone: bool = False
    torchrun: bool = False

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that must be named."""
        return (_CULPRIT,) if self.fault else ()


def _drill(name: str, kind: str, more: str = "", **options: object) -> Drill:
    step = f"{_FAULT_STEP}-" if name == "slow" else f"{_FAULT_STEP}"
    fault = f"{name}:rank={_CULPRIT},step={step}{more}"
    return Drill(name=name, fault=fault, kind=kind, **options)  # type: ignore[arg-type]  # its own fields


DRILLS: tuple[Drill, ...] = (
    Drill(name="clean", ranks=2, steps=150, alone=True, torchrun=True),
    _drill("slow", "slow.straggler", ",factor=4", severity="warning", alone=True),
    _drill("hang", "hang.rank_blocked"),
    _drill("gil", "hang.rank_blocked"),
    _drill("data", "hang.data_starved"),
    _drill("stop", "hang.rank_stopped"),
    _drill("mismatch", "hang.collective_mismatch"),
    _drill("leave", "hang.rank_missing"),
    _drill("cycle", "hang.group_cycle"),
    _drill("unsent", "hang.p2p_unmatched"),
    _drill("store", "hang.store_wait"),
    _drill("kill", "exit.killed"),
    _drill("raise", "exit.error"),
    _drill("exit", "exit.early"),
)
