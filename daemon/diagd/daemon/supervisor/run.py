"""Runs a job with its watch beside it, from the first process to the exit code."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagd.daemon.supervisor.ending import Ending
from diagd.daemon.supervisor.events import (
    CUTTING,
    Ended,
    Event,
    Events,
    Said,
    Signalled,
    exit_code_of,
    peeked_exit_code,
)
from diagd.daemon.supervisor.place import Place
from diagd.daemon.supervisor.runfile import write_run_file
from diagd.daemon.supervisor.start import job_environment, start_job
from diagd.daemon.supervisor.tree import below, processes_of, send
from diagd.daemon.supervisor.watcher import BACKOFF_S, LASTING_S, Watcher, watch_environment

ABORTED = 86
FAREWELL_S = 8.0  # the watch's last report takes about a second; a job's end must not hang on it
_CLOSING_S = 1.0
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_TICK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run, and how it is to be watched."""

    command: Sequence[str]
    environ: Mapping[str, str]
    bootstrap: Path  # the folder that goes first on PYTHONPATH
    job_id: str
    place: Place | None  # None: there is nowhere to meet the ranks, so the job runs unwatched
    report_dir: Path | None = None
    file_prefix: str = ""  # tells this run's dumps there from earlier ones'
    hang_after_s: float = 60.0
    on_hang: str = "dump"
    aggregator: str | None = None
    record: Path | None = None


@dataclass(slots=True)
class Outcome:
    """How it went."""

    exit_code: int
    watched: bool
    aborted: bool = False
    finished: bool = False  # the watch had the time to write its last report
    addresses: dict[str, Any] = field(default_factory=dict)


def supervise(plan: Plan, say: Callable[[str], None]) -> Outcome:
    """Run the job to its end; `say` prints one line for the person.

    Raises:
        CannotStart: The command cannot be started.
    """
    return _Supervisor(plan, say).run()


class _Supervisor:
    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._run_dir = plan.place.path if plan.place else None
        self._events = Events()
        self._job_pid = 0
        self._started_s = 0.0
        self._exit_code: int | None = None
        self._watcher: Watcher | None = None
        self._watch_started = 0.0
        self._watch_again_at: float | None = None
        self._failures = self._restarts = 0
        self._ending: Ending | None = None
        self._done = False
        self._addresses: dict[str, Any] = {}

    def run(self) -> Outcome:
        env = job_environment(self._plan.environ, self._plan.job_id, self._run_dir, self._plan.bootstrap)
        if self._run_dir:
            (self._run_dir / "fr").mkdir(exist_ok=True)
        self._started_s = time.time()
        self._job_pid = start_job(self._plan.command, env, self._events.mask)
        self._events.wait_for(self._job_pid)
        self._write_run_file()
        self._start_watch()
        while self._exit_code is None and not (self._ending and self._ending.over):
            self._handle(self._events.next(self._timeout_s()))
            self._do_what_is_due()
        aborted = self._ending is not None
        self._finish_abort()
        self._write_run_file()
        self._say_farewell()
        if self._exit_code is not None:
            os.waitpid(self._job_pid, 0)
        code = ABORTED if aborted or self._exit_code is None else self._exit_code
        return Outcome(code, self._watcher is not None or self._done, aborted, self._done, self._addresses)

    def _handle(self, event: Event | None) -> None:
        match event:
            case Signalled(number, by_terminal) if self._exit_code is None:
                if number in _ENDING and self._watcher is not None:  # first: the deaths that follow are wanted
                    self._watcher.tell({"stopping": {"signal": number.name}})
                if not by_terminal:
                    send([self._job_pid], number)
            case Ended(pid):
                self._handle_end(pid)
            case Said(watcher, message) if watcher is self._watcher and message is not None:
                self._handle_message(message)
            case _:
                pass

    def _handle_end(self, pid: int) -> None:
        if pid == self._job_pid:
            # Reaped only once the watch has looked a last time: how a rank without a launcher ended shows nowhere else.
            self._exit_code = peeked_exit_code(pid)
            return
        code = exit_code_of(os.waitpid(pid, 0)[1])
        if self._watcher is not None and pid == self._watcher.pid:
            self._watcher.close()
            self._watcher = None
            if self._exit_code is None:
                self._watch_ended(code)

    def _handle_message(self, message: Mapping[str, Any]) -> None:
        if isinstance(ready := message.get("ready"), dict):
            self._addresses = ready
            self._write_run_file()
        if isinstance(message.get("abort"), dict) and self._ending is None and self._exit_code is None:
            self._say("ending the job, as --on-hang abort says")
            self._ending = Ending(self._job_pid, self._run_dir)
        if isinstance(restart := message.get("restart"), dict) and self._exit_code is None:
            self._end_culprit(restart)
        if message.get("done"):
            self._done = True

    def _end_culprit(self, restart: Mapping[str, Any]) -> None:
        pid, rank = restart.get("pid"), restart.get("rank")
        if self._run_dir is None or not isinstance(pid, int) or pid not in processes_of(self._run_dir, self._job_pid):
            self._say(f"rank {rank} is not ended: process {pid} is gone, or none of this job's")
            return
        self._say(
            f"ending rank {rank} (process {pid}), as --on-hang restart says: its launcher may start the job again"
        )
        left = below(pid)  # what it has started and no longer could end: workers that are stuck outlive it else
        send([pid, *left], signal.SIGKILL)

    def _start_watch(self) -> None:
        self._watch_again_at = None
        if self._run_dir is None:
            return
        self._watch_started = time.monotonic()
        environ = watch_environment(self._plan.environ)
        try:
            self._watcher = Watcher(self._watch_arguments(), environ, self._events.mask, self._heard)
        except OSError as exc:
            self._say(f"the watch process cannot be started ({exc.strerror}): the job runs on unwatched")
            return
        self._events.wait_for(self._watcher.pid)
        job = {"pid": self._job_pid, "command": list(self._plan.command), "started_s": self._started_s}
        self._watcher.tell({"job": job})

    def _heard(self, watcher: Watcher, message: dict[str, Any] | None) -> None:
        self._events.put(Said(watcher, message))

    def _watch_arguments(self) -> list[str]:
        plan = self._plan
        arguments = {
            "--run-dir": self._run_dir,
            "--job-id": plan.job_id,
            "--report": plan.report_dir or "none",
            "--dump-prefix": plan.file_prefix,
            "--hang-after": f"{plan.hang_after_s:g}",
            "--on-hang": plan.on_hang,
            "--aggregator": plan.aggregator or "none",
            "--record": plan.record or "none",
            "--restarts": self._restarts,
        }
        return [str(word) for pair in arguments.items() for word in pair]

    def _watch_ended(self, code: int) -> None:
        if time.monotonic() - self._watch_started >= LASTING_S:
            self._failures = 0
        how = f"signal {signal.Signals(code - 128).name}" if code > 128 else f"exit code {code}"
        if self._failures >= len(BACKOFF_S):
            self._say(f"the watch process ended {self._failures + 1} times (last: {how}): the job runs on unwatched")
            return
        delay_s = BACKOFF_S[self._failures]
        self._failures += 1
        self._watch_again_at = time.monotonic() + delay_s
        self._restarts += 1
        again = " again" if self._restarts > 1 else ""
        self._say(f"the watch process ended{again} ({how}); it is started anew, the job is not touched")

    def _timeout_s(self) -> float | None:
        due = [self._watch_again_at] if self._watch_again_at is not None else []
        if self._ending is not None:
            due.append(self._ending.next_at)
        if os.getpid() == 1:
            due.append(time.monotonic() + _TICK_S)
        return max(min(due) - time.monotonic(), 0.0) if due else None

    def _do_what_is_due(self) -> None:
        if self._watch_again_at is not None and time.monotonic() >= self._watch_again_at:
            self._start_watch()
        if self._ending is not None:
            self._ending.advance(time.monotonic())
        if os.getpid() == 1:
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        """As a container's first process diagd inherits what others leave."""
        ours = {self._job_pid, self._watcher.pid if self._watcher else 0}
        with suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid not in ours:
                os.waitpid(found.si_pid, 0)

    def _finish_abort(self) -> None:
        """The launcher is gone; what it has left behind follows."""
        while self._ending is not None and not self._ending.over:
            self._ending.advance(time.monotonic())
            if not self._ending.over:
                self._handle(self._events.next(max(self._ending.next_at - time.monotonic(), 0.0)))

    def _say_farewell(self) -> None:
        """Let the watch write its last report; a second Ctrl-C, or any other signal, cuts that short."""
        watcher = self._watcher
        if watcher is None:
            return
        watcher.tell({"exited": {"code": ABORTED if self._ending else self._exit_code}})
        self._attend(FAREWELL_S, lambda: self._done or self._watcher is None)
        watcher.close()
        self._attend(_CLOSING_S, lambda: self._watcher is None)
        if self._watcher is not None:
            watcher.kill()

    def _attend(self, limit_s: float, satisfied: Callable[[], bool]) -> None:
        """Handle events until `satisfied`, a signal, or the limit."""
        deadline = time.monotonic() + limit_s
        while not satisfied() and (left_s := deadline - time.monotonic()) > 0:
            event = self._events.next(left_s)
            self._handle(event)
            if isinstance(event, Signalled) and event.number in CUTTING:
                return

    def _write_run_file(self) -> None:
        if self._run_dir is None:
            return
        write_run_file(
            self._run_dir,
            {
                "job_id": self._plan.job_id,
                "command": list(self._plan.command),
                "started_s": self._started_s,
                "pid": self._job_pid,
                "supervisor_pid": os.getpid(),
                "report": str(self._plan.report_dir) if self._plan.report_dir else None,
                "exit_code": self._exit_code,
                "python": sys.executable,
                **self._addresses,
            },
        )
