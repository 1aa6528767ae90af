"""The compiled path of what a rank does at every operation; the Python functions beside it define what is right."""

from __future__ import annotations

from diagd.probes import part_of

TYPE_CHECKING = False
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        return part_of(__name__, name)
