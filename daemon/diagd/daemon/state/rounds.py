"""Looks at a rank come in rounds, ever further apart while its steps take as long as they did."""

from dataclasses import dataclass

FIRST_S = 30.0  # what was seen holds for so long at first
LONGEST_S = 240.0
CHANGED = 1.3  # a step that takes so many times as long, or as short, is another pace


@dataclass(slots=True)
class Rounds:
    """When one rank's stacks were looked at, and how long that may do."""

    began_s: float = 0.0  # the newest round; 0 before the first
    _step_s: float = 0.0  # what a step took since then
    _alike: int = 0  # rounds in a row at one pace

    def holds_s(self) -> float:
        """How long a round may stand: twice as long after each that found the same pace."""
        return min(FIRST_S * 2.0 ** min(self._alike, 8), LONGEST_S)

    def holds(self, at_s: float, now_s: float) -> bool:
        """Whether a look at that moment still tells where the rank is."""
        return now_s - at_s <= max(self.holds_s(), FIRST_S) and at_s >= self.began_s

    def is_due(self, now_s: float) -> bool:
        """Whether the next round should begin."""
        return now_s - self.began_s > self.holds_s()

    def note_look(self, at_s: float) -> None:
        """Its stacks were looked at: in this round, or in the first look of the next one."""
        if not self.is_due(at_s):
            return
        self._alike = self._alike + 1 if self.began_s and self._step_s else 0
        self.began_s = at_s

    def note_pace(self, step_s: float) -> None:
        """A step takes so long now. Another pace shortens the round and the next ones."""
        if not self._step_s or not self._step_s / CHANGED <= step_s <= self._step_s * CHANGED:
            self._step_s, self._alike = step_s, 0
