"""Whether a job goes on as it did, so that it need not be judged at each look of its agents."""

import numpy as np
from numpy.typing import NDArray

from diagd.daemon.state.job import JobState

EVERY_S = 1.0  # between two judgements of a job that goes on


class Calm:
    """What was seen of the ranks' progress at the last judgement."""

    def __init__(self) -> None:
        self._at_s = -np.inf
        self._steps: NDArray[np.int64] = np.empty(0, np.int64)
        self._operations: NDArray[np.int64] = np.empty(0, np.int64)
        self.went_on = False  # at the last judgement all ranks had come further than at the one before

    def lasts(self, state: JobState) -> bool:
        """Whether every rank has come further since the last judgement, which was short ago."""
        return 0 <= state.now_s - self._at_s < EVERY_S and self._all_further(state)

    def _all_further(self, state: JobState) -> bool:
        columns = state.columns
        if len(columns.step) != len(self._steps):
            return False
        if state.ended_s is not None or state.stopping_s is not None or state.candidates:
            return False
        further = (columns.step > self._steps) | (columns.operations > self._operations)
        return bool(columns.known.any() and further[columns.known].all())

    def judged(self, state: JobState) -> None:
        """The job is judged now."""
        self._at_s, self.went_on = state.now_s, self._all_further(state)
        self._steps, self._operations = state.columns.step.copy(), state.columns.operations.copy()
