"""What runs inside a rank: the box it writes to, and the probes that write.

In a script, for those who want it: `from diagd.probes import log_metrics, phase, watch`, then
`log_metrics({"kl": kl}, step)`, `with phase("checkpoint"): …` and `watch(model=model, optimizer=my_optimizer)`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs every Python process of a job some milliseconds
if TYPE_CHECKING:
    from typing import Any

    from diagd.probes.loggers import log_metrics as log_metrics
    from diagd.probes.phases import phase as phase
    from diagd.probes.watching import watch as watch

__all__ = ["log_metrics", "phase", "watch"]


def __getattr__(name: str) -> Any:
    # Loaded on demand: most of the processes that import this package are no ranks.
    if name == "phase":
        from diagd.probes.phases import phase

        return phase
    if name == "log_metrics":
        from diagd.probes.loggers import log_metrics

        return log_metrics
    if name == "watch":
        from diagd.probes.watching import watch

        return watch
    return part_of(__name__, name)


def part_of(package: str, name: str) -> Any:
    """Import a module of a package of ours; `from package import name` by itself would also import `diagd` by name.

    Raises:
        AttributeError: There is no such module.
    """
    module = f"{package}.{name}"
    if not name.startswith("_"):
        try:
            return __import__(module, None, None, ["__name__"])
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
