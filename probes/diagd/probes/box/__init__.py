"""The rank box: a fixed-size file that a rank writes and anyone may read, also after the rank's death."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # The package above, which is always there; by its place, as the box needs none of the probes.
        return sys.modules[__name__.rpartition(".")[0]].part_of(__name__, name)
