"""The jobs of one aggregator, and the one lock that all who touch them hold."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from diagd.daemon.aggregator.judging import Link
from diagd.daemon.aggregator.loop import JobLoop
from diagd.daemon.incidents.incident import Incident
from diagd.proto.v1.agent_pb2 import Ack, ConnectRequest, Goodbye, Hello

log = logging.getLogger(__name__)


class UnknownJob(LookupError):
    """The aggregator does not serve this job."""


@dataclass(slots=True)
class JobEntry:
    """A job, and what is known of its agents' streams."""

    loop: JobLoop
    sequences: dict[tuple[str, str], int] = field(default_factory=dict)  # by node and session: the last window taken
    goodbyes: dict[str, Goodbye] = field(default_factory=dict)  # by node


@dataclass(slots=True)
class HubCounters:
    """What came in, for /metrics."""

    messages: int = 0
    duplicates: int = 0
    streams: int = 0


class Hub:
    """Takes messages from any thread; the jobs' loops are ticked by one.

    Args:
        open_job: Makes a job's loop when its first agent comes; None where no other job is served than those added.
        clock: Unix seconds.
    """

    def __init__(self, clock: Callable[[], float], open_job: Callable[[str], JobLoop] | None = None) -> None:
        self.lock = threading.RLock()
        self.counters = HubCounters()
        self.clock = clock
        self.last_tick_s = 0.0
        self._open_job = open_job
        self._jobs: dict[str, JobEntry] = {}

    def add(self, loop: JobLoop) -> None:
        """Serve this job."""
        with self.lock:
            self._jobs[loop.state.job_id] = JobEntry(loop)

    def remove(self, job_id: str) -> None:
        """Forget this job."""
        with self.lock:
            self._jobs.pop(job_id, None)

    def loops(self) -> list[JobLoop]:
        """All jobs; to be read under the lock."""
        return [entry.loop for entry in self._jobs.values()]

    def find(self, job_id: str) -> JobLoop:
        """The job of this name; of an empty name, the only one. To be read under the lock.

        Raises:
            UnknownJob: There is none.
        """
        if not job_id and len(self._jobs) == 1:
            return next(iter(self._jobs.values())).loop
        if job_id not in self._jobs:
            known = ", ".join(sorted(self._jobs)) or "none yet"
            raise UnknownJob(f"no job {job_id!r} here; known are: {known}")
        return self._jobs[job_id].loop

    def connect(self, link: Link, hello: Hello) -> Ack:
        """A stream begins.

        Raises:
            UnknownJob: The job is not served here.
        """
        with self.lock:
            entry = self._jobs.get(hello.job_id)
            if entry is None:
                if self._open_job is None or not hello.job_id:
                    raise UnknownJob(f"this aggregator does not serve job {hello.job_id!r}")
                entry = self._jobs[hello.job_id] = JobEntry(self._open_job(hello.job_id))
            entry.loop.connect(link)
            entry.goodbyes.pop(link.node, None)
            entry.loop.receive(link, ConnectRequest(hello=hello), self.clock())
            self.counters.streams += 1
            last = entry.sequences.setdefault((link.node, hello.session), 0)
            log.info("node %s reports for job %s", link.node, hello.job_id)
            return Ack(seq=last, time_s=self.clock(), sent_s=hello.time_s)

    def receive(self, link: Link, job_id: str, session: str, request: ConnectRequest) -> int:
        """A message of a stream; the number of the last window taken."""
        with self.lock:
            entry = self._jobs.get(job_id)
            if entry is None:  # forgotten meanwhile
                return 0
            self.counters.messages += 1
            key = (link.node, session)
            if request.HasField("window"):
                if request.window.seq <= entry.sequences.get(key, 0):
                    self.counters.duplicates += 1
                    return entry.sequences[key]
                entry.sequences[key] = request.window.seq
            elif request.HasField("goodbye"):
                entry.goodbyes[link.node] = request.goodbye
            entry.loop.receive(link, request, self.clock())
            return entry.sequences.get(key, 0)

    def disconnect(self, link: Link, job_id: str) -> None:
        """A stream has ended. Once the last of a job's nodes has said goodbye, the job is over."""
        with self.lock:
            entry = self._jobs.get(job_id)
            if entry is None:
                return
            self.counters.streams -= 1
            entry.loop.disconnect(link)
            codes = [g.exit_code for g in entry.goodbyes.values() if g.HasField("exit_code")]
            if self._open_job is not None and codes and not entry.loop.nodes:
                entry.loop.ended(next((c for c in codes if c), 0), self.clock())

    def tick(self) -> list[tuple[JobLoop, list[Incident]]]:
        """Judge every job and send what commands are due; the jobs whose incidents changed."""
        with self.lock:
            now_s = self.clock()
            self.last_tick_s = now_s
            changed = []
            for entry in list(self._jobs.values()):
                incidents = entry.loop.tick(now_s)
                if incidents:
                    changed.append((entry.loop, incidents))
                for link, command in entry.loop.commands(now_s):
                    link.command(command)
            return changed
