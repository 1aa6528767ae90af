"""When something that tells seldom anything new is looked at: in each of the first steps, then ever more seldom."""

from typing import Any

from diagd.probes.state import STATE

FIRST, TIMES = 3, 4  # steps


class Looks:
    """This process's, of one kind."""

    def __init__(self) -> None:
        self.next = 0  # step
        self.box: Any = None  # a forked child begins anew

    def due(self, step: int) -> bool:
        """Whether to look in this step."""
        if self.box is not STATE.box:
            self.box, self.next = STATE.box, 0
        return step >= self.next

    def looked(self, step: int, follow: bool = False) -> None:
        """It was looked at; `follow` it where there is something to be seen in each step."""
        self.next = step + 1 if follow or step < FIRST else TIMES * step
