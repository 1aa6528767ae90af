"""Where in a log something was, in words: by the step, or by the line where the log says no step.

Detectors count samples then, and call them steps, as live there is always a step. A person is told the line instead.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.artifacts.columns import Ints, Key
from diagd.daemon.artifacts.stepping import Stretch

_STEPS = re.compile(r"\b(step|steps) (\d+)((?:, \d+)*)")
_IN_A_ROW = re.compile(r"\b(\d+) steps( in a row)")


class Places:
    """One run's, of the metrics whose steps are not known."""

    def __init__(self) -> None:
        self._of: dict[Key, list[tuple[Ints, Ints | None]]] = {}  # places of samples, and their lines

    def note(self, stretch: Stretch, kept: Mapping[Key, NDArray[np.bool_]]) -> None:
        """The samples that are fed of a stretch."""
        for key, lines in stretch.counted.items():
            if key in kept:
                places = stretch.samples[key][0][kept[key]]
                self._of.setdefault(key, []).append((places, None if lines is None else lines[kept[key]]))

    def knows_steps(self, key: Key | None) -> bool:
        """Whether the log says at which steps this metric was."""
        return key not in self._of

    def word(self, key: Key | None, place: int) -> str:
        """`step 120`, `line 1207` or, where each line is one of an epoch, `epoch 7`."""
        parts = self._of.get(key, ()) if key is not None else ()
        for places, lines in reversed(parts):
            if len(places) and places[0] <= place:
                if lines is None:
                    return f"epoch {place}"
                return f"line {lines[min(int(np.searchsorted(places, place)), len(lines) - 1)]}"
        return f"line {place}" if parts else f"step {place}"

    def tell(self, incident: dict[str, Any], key: Key | None) -> None:
        """Put lines in the place of steps, in all that an incident says, unless its metric has steps."""
        if key not in self._of:
            return
        incident["step"] = None
        incident["summary"] = self._said(incident["summary"], key)
        for cause in incident["causes"]:
            cause["cause"] = self._said(cause["cause"], key)
            for evidence in cause["evidence"]:
                evidence["what"], evidence["step"] = self._said(evidence["what"], key), None

    def _said(self, text: str, key: Key) -> str:
        def told(found: re.Match[str]) -> str:
            words = [self.word(key, int(place)) for place in (found[2], *re.findall(r"\d+", found[3]))]
            unit = words[0].partition(" ")[0]
            return f"{unit}{'s' * (len(words) > 1)} {', '.join(word.partition(' ')[2] for word in words)}"

        return _STEPS.sub(told, _IN_A_ROW.sub(r"\1 samples\2", text))
