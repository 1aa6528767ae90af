"""Ends a job: kindly to its launcher, then to all its processes, then for good."""

import signal
import time
from pathlib import Path

from diagd.daemon.supervisor.tree import processes_of, send, states_of

# After the launcher's SIGTERM: its workers', for a launcher that passes nothing on; then SIGKILL.
WORKERS_AFTER_S = 2.0
KILL_AFTER_S = 5.0
GIVE_UP_AFTER_S = 8.0  # what even SIGKILL does not end hangs in the kernel
_LOOK_S = 0.2


class Ending:
    """The end of one job, in steps that are taken by `advance`."""

    def __init__(self, job_pid: int, run_dir: Path | None) -> None:
        self._job_pid = job_pid
        self._run_dir = run_dir
        self._began = time.monotonic()
        self._terminated: set[int] = {job_pid}
        self.over = False
        self.next_at = self._began
        send([job_pid], signal.SIGTERM)

    def advance(self, now: float) -> None:
        """Do what is due, and set `next_at`; `over` once no process of the job is left."""
        if now < self.next_at or self.over:
            return
        left = self._left()
        passed_s = now - self._began
        if not left or passed_s >= GIVE_UP_AFTER_S:
            self.over = True
            return
        if passed_s >= KILL_AFTER_S:
            send(left, signal.SIGKILL)
        elif passed_s >= WORKERS_AFTER_S:
            send(set(left) - self._terminated, signal.SIGTERM)
            self._terminated.update(left)
        # A stopped process takes SIGTERM only when it goes on.
        send([pid for pid, state in states_of(left).items() if state in "Tt"], signal.SIGCONT)
        self.next_at = now + _LOOK_S

    def _left(self) -> list[int]:
        if self._run_dir is None:
            return list(states_of([self._job_pid]))
        return processes_of(self._run_dir, self._job_pid)
