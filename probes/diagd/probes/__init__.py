"""What runs inside a rank: the box it writes to, and the probes that write.

In a script, for those who want it: `from diagd.probes import phase`, then `with phase("checkpoint"): …`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagd.probes.phases import phase as phase

__all__ = ["phase"]


def __getattr__(name: str) -> Any:
    # Loaded on demand: this package is imported by every Python process of a job, most of which are no ranks.
    if name == "phase":
        from diagd.probes.phases import phase

        return phase
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
