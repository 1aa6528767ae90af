"""A ledger that somebody saves: every rank is asked what all its tensors add up to after one and the same step.

No clock, no threads. What the ranks answer is kept by the state, and put together by ledger.py.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from diagd.daemon.aggregator.sweeping import EXPIRES_S, LATER, LEAD_S, Serials, has_changed, step_ahead, step_interval_s
from diagd.daemon.state.job import JobState
from diagd.proto.v1.agent_pb2 import DigestRequest

MAX_TRIES = 4  # where ranks were past the step before they saw the request
NEAR = 3  # times as far ahead as a step has to be: those of a step that is further are asked later


class Phase(StrEnum):
    """How far it is."""

    NONE = "none"  # nobody has asked
    WANTED = "wanted"  # until ranks can be asked
    ASKED = "asked"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class Save:
    """One wish of somebody's."""

    number: int = 0  # of the wish, from 1
    phase: Phase = Phase.NONE
    wanted_step: int | None = None  # where it has to be a certain one
    step: int = -1
    serial: int = 0
    until_s: float = 0.0  # then they are asked anew, for a later step
    pids: dict[int, int] = field(default_factory=dict)  # by rank
    tries: int = 0
    lead_s: float = LEAD_S
    why: str = ""  # it has failed, or why ranks cannot be asked yet


class Saves:
    """Those of one job, one at a time."""

    def __init__(self, serials: Serials) -> None:
        self.now = Save()
        self._serials = serials

    @property
    def busy(self) -> bool:
        """Whether ranks are asked."""
        return self.now.phase is Phase.ASKED

    def want(self, step: int | None) -> Save:
        """Somebody wants one, of this step where it is given; one that is under way serves all who want it alike."""
        under_way = self.now.phase in (Phase.WANTED, Phase.ASKED)
        if not (under_way and self.now.wanted_step == step):
            self.now = Save(self.now.number + 1, Phase.WANTED, step)
        return self.now

    def due(self, state: JobState, now_s: float) -> dict[int, DigestRequest]:
        """What each rank is to be asked now."""
        save = self.now
        if save.phase is Phase.ASKED:
            self._look(save, state)
            if self.busy and save.wanted_step is None and now_s > save.until_s:
                save.phase = Phase.WANTED
        if save.phase is not Phase.WANTED:
            return {}
        interval_s = step_interval_s(state)
        save.why = _hindrance(state, interval_s)
        if save.why:
            return {}
        step, ahead = step_ahead(state, save.lead_s, interval_s)
        if save.wanted_step is not None and not self._is_near(save, save.wanted_step, step - ahead, ahead):
            return {}
        save.step = step if save.wanted_step is None else save.wanted_step
        save.until_s = now_s + EXPIRES_S + 3 * ahead * interval_s
        return self._ask(save, state, now_s)

    def _is_near(self, save: Save, wanted: int, at: int, ahead: int) -> bool:
        if wanted <= at:
            save.phase, save.why = Phase.FAILED, f"step {wanted} is over: the job has made {at}"
        elif wanted - at > NEAR * ahead:
            save.why = f"step {wanted} is still {wanted - at} steps ahead"
        return save.phase is Phase.WANTED and not save.why

    def _ask(self, save: Save, state: JobState, now_s: float) -> dict[int, DigestRequest]:
        save.phase, save.tries = Phase.ASKED, save.tries + 1
        save.serial = self._serials.following(now_s)
        save.pids = {rank: state.tensors.pid(rank) for rank in state.tensors.ranks}
        return {
            rank: DigestRequest(rank=rank, pid=pid, serial=save.serial, step=save.step, everything=True, sums=True)
            for rank, pid in save.pids.items()
        }

    def refresh(self, state: JobState) -> Save:
        """How far it is now."""
        if self.now.phase is Phase.ASKED:
            self._look(self.now, state)
        return self.now

    def answered(self, state: JobState) -> list[int]:
        """The ranks that have done what was asked."""
        save = self.now
        return [rank for rank in save.pids if state.tensors.answers.get(rank, (0, 0))[0] == save.serial]

    def _look(self, save: Save, state: JobState) -> None:
        if len(self.answered(state)) == len(save.pids):
            late = [rank for rank in save.pids if state.tensors.answers[rank][1] != save.step]
            if not late:
                save.phase = Phase.DONE
            elif save.wanted_step is None and save.tries < MAX_TRIES:
                save.phase, save.lead_s = Phase.WANTED, save.lead_s * LATER
            else:
                save.phase = Phase.FAILED
                save.why = f"{len(late)} of {len(save.pids)} ranks were past step {save.step} when they saw the request"
        elif has_changed(state, save.pids):
            save.phase, save.why = Phase.FAILED, "a rank has ended, or is another process now"


def _hindrance(state: JobState, interval_s: float) -> str:
    """Why the ranks cannot be asked now; empty where they can."""
    if not state.tensors.ranks:
        return "no rank has made its first step yet"
    if any(state.status(rank).gone for rank in state.tensors.ranks):
        return "a rank is gone"
    if len(state.tensors.ranks) < state.world_size:
        return f"{len(state.tensors.ranks)} of {state.world_size} ranks have told what their tensors are"
    return "" if interval_s else "it is not known yet how long a step takes"
