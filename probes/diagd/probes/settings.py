"""What the environment tells the probes; nothing else in them reads DIAGD_*."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Of the process that already is the rank: a child that inherits it does not take itself for the same rank.
RANK_PID = "DIAGD_RANK_PID"


class Settings:
    """How `diagd run` wants the probes.

    Args:
        folder: The run directory, mode 0700; empty: no diagd around this process.
        job: The job's id.
        probes: By name; None: all.
        bench_steps: Switch the probes off and on every so many steps; 0: never.
        faults: What to plant in a drill, as faults.py reads it; empty: nothing.
        native: Go the compiled way where it was built.
        ledger_at_start: Tell what the tensors hold before the first step, as `diagd ledger save` asks later.
        trace_allocations: Have Python trace for some steps where memory is allocated, once it is seen to grow.
    """

    def __init__(
        self,
        folder: str = "",
        job: str = "",
        probes: frozenset[str] | None = None,
        bench_steps: int = 0,
        faults: str = "",
        native: bool = False,
        ledger_at_start: bool = False,
        trace_allocations: bool = False,
    ) -> None:
        self.folder = folder
        self.job = job
        self.probes = probes
        self.bench_steps = bench_steps
        self.faults = faults
        self.native = native
        self.ledger_at_start = ledger_at_start
        self.trace_allocations = trace_allocations


def read(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ`; what is malformed counts as not set, as there is nobody to tell."""
    names = environ.get("DIAGD_PROBES", "").strip()
    return Settings(
        folder=environ.get("DIAGD_DIR", ""),
        job=environ.get("DIAGD_JOB_ID", ""),
        probes=frozenset(name.strip() for name in names.split(",")) if names not in ("", "all") else None,
        bench_steps=_bench_steps(environ.get("DIAGD_BENCH", "")),
        faults=environ.get("DIAGD_INJECT", "").strip(),
        native=environ.get("DIAGD_NATIVE", "").strip() != "off",
        ledger_at_start=environ.get("DIAGD_LEDGER", "").strip() == "start",
        trace_allocations=environ.get("DIAGD_TRACE", "").strip() == "allocations",
    )


def _bench_steps(text: str) -> int:
    kind, _, steps = text.partition(":")
    return int(steps) if kind == "blocks" and steps.isdigit() else 0
