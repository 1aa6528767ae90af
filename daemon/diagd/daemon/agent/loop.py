"""The agent's loop: looks at the ranks of a job on its node, says what it sees, and does what it is asked."""

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diagd.daemon.agent.obeying import ask_all, by_depth, only
from diagd.daemon.agent.parts import Looks, Uplink
from diagd.daemon.agent.watchfulness import GLANCE_PART, Tracing, Watchfulness
from diagd.daemon.config.settings import AgentConfig
from diagd.daemon.state.model import Detail, Facts, Status
from diagd.daemon.state.scalars import SignalNews
from diagd.proto.v1.agent_pb2 import Command, CommandResult

log = logging.getLogger(__name__)

SIGNALS_LOOKS = 1.9  # scalars are read at every second look: they keep until then, and are judged more seldom still
COST_WEIGHT = 0.1  # of the newest look in what a look costs

Dump = Callable[[Sequence[int], str], Path]


@dataclass(slots=True)
class Health:
    """What the loop has done."""

    looks: int = 0
    failures: int = 0
    looked_s: float = 0.0  # when it last did


class AgentLoop:
    """Looks, sends, and does what the aggregator asks; one for each job on a node."""

    def __init__(
        self,
        observer: Looks,
        uplink: Uplink,
        *,
        config: AgentConfig | None = None,
        dump: Dump | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._observer = observer
        self._uplink = uplink
        self._config = config or AgentConfig()
        self._dump = dump
        self._clock = clock
        self._watchfulness = Watchfulness()
        self._tracing = Tracing()
        self._pids: dict[int, int] = {}
        self._candidates: set[int] = set()
        self._facts: list[Facts] = []
        self.health = Health()
        self._connections = 0
        self._signals_s = 0.0
        self._cost_s = 0.0  # CPU of a look, smoothed
        self._debuggers: dict[int, str] = {}
        self._found: deque[Detail] = deque()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="diagd-deep")
        self._thread: threading.Thread | None = None

    @property
    def next_look_s(self) -> float:
        """Seconds until the next look is due."""
        if self._watchfulness.suspicious:
            return self._config.suspicious_look_s
        return self._config.look_s * self._watchfulness.looks

    def start(self) -> None:
        """Look in a thread of its own until `stop`."""
        self._thread = threading.Thread(target=self.run, name="diagd-agent", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Look until `stop`."""
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self.step()
            except Exception:
                self.health.failures += 1
                if self.health.failures in (1, 10, 100, 1000):
                    log.exception("a look failed (%d times so far)", self.health.failures)
            self._rest(began)

    def _rest(self, began: float) -> None:
        """Until the next look is due; for long only while each glance shows that all ranks get on."""
        next_s = self.next_look_s
        due, glance = began + next_s, began + max(GLANCE_PART * next_s, self._config.look_s)
        while not self._wake.wait(max(min(due, glance) - time.monotonic(), 0.01)):
            if time.monotonic() >= due or not self._observer.gets_on():
                break
            glance += self._config.look_s
        self._wake.clear()

    def stop(self) -> None:
        """Stop looking; what is under way is finished, what is not begun is dropped."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        self._worker.shutdown(wait=True, cancel_futures=True)

    def step(self, *, everything: bool = False) -> None:
        """One look; with `everything`, all ranks' details and histories, which is the last look."""
        now_s, began_look = self._clock(), time.thread_time()
        facts = self._facts = list(self._observer.look(now_s))
        self._tracing.hide(facts, now_s)
        self._pids = {f.rank: f.pid for f in facts if not f.status.gone}
        self.health.looks, self.health.looked_s = self.health.looks + 1, now_s
        anew = self._uplink.connections != self._connections
        if anew:
            self._connections = self._uplink.connections
            self._watchfulness.forget_sent()
        due = self._watchfulness.due(facts, now_s, self._cost_s / self._config.look_s)
        began_cpu = time.thread_time()
        if everything:
            ranks = [f.rank for f in facts]
            details = list(self._observer.deep(ranks, stacks=False, recorder=False, history=True)) if ranks else []
        else:
            details = self._details(self._candidates.union(due))
        self._candidates = (self._candidates - {d.rank for d in details}) | {d.rank for d in details if not d.is_rank}
        details = self._watchfulness.news(details, now_s, time.thread_time() - began_cpu)
        details += self._take_found()
        self._debuggers.update((d.rank, d.debugger) for d in details)
        # Whether a process that has only loaded torch.distributed becomes a rank is not known yet.
        told = [f for f in facts if f.rank not in self._candidates]
        signals: Sequence[SignalNews] = ()
        if everything or anew or now_s - self._signals_s >= SIGNALS_LOOKS * self._config.look_s:
            self._signals_s, signals = now_s, self._observer.signals(anew)
        self._uplink.send(told, details, now_s, self._observer.ledgers(anew), signals)
        self._cost_s += COST_WEIGHT * (time.thread_time() - began_look - self._cost_s)

    @property
    def ranks(self) -> int:
        """Ranks whose processes were there at the last look."""
        return len(self._pids.keys() - self._candidates)

    @property
    def unsettled(self) -> bool:
        """Whether some process is gone and it is not known yet how it ended."""
        return any(f.main_state in "XZ" and not f.status.gone and f.status is not Status.LOST for f in self._facts)

    def pid_of(self, rank: int) -> int | None:
        """The rank's live process, where it is on this node."""
        return self._pids.get(rank)

    def held_by(self, rank: int) -> str:
        """The debugger or person that holds it, as the last detail has it; empty where none does."""
        return self._debuggers.get(rank, "")

    def _details(self, ranks: set[int]) -> list[Detail]:
        for _ in range(3):
            try:
                found = self._observer.details(sorted(ranks)) if ranks else []
                # How it ended is told with where it was, and in what.
                return [only(d, d.exit is not None, False, d.exit is not None) for d in found]
            except RuntimeError:  # a deep look, in its own thread, changed what was being read
                continue
        return []

    def _take_found(self) -> list[Detail]:
        taken = []
        while self._found:
            taken.append(self._found.popleft())
        return taken

    def command(self, command: Command) -> None:
        """Take a command; it is done in a thread of its own."""
        with suppress(RuntimeError):  # already stopping
            self._worker.submit(self._obey, command)

    def _obey(self, command: Command) -> None:
        result = CommandResult(id=command.id)
        try:
            self._do(command, result)
        except Exception as exc:  # noqa: BLE001 - nobody else would hear of it; the aggregator asks again
            log.warning("a command failed: %s: %s", type(exc).__name__, exc)
            result.error = f"{type(exc).__name__}: {exc}"
        # The details go first, so that the answer means that they are there.
        if self._found:
            self.flush()
        self._uplink.answer(result)

    def flush(self) -> None:
        """Send what deep looks have found, now."""
        details = self._take_found()
        self._debuggers.update((d.rank, d.debugger) for d in details)
        self._uplink.send([], details, self._clock())

    def _do(self, command: Command, result: CommandResult) -> None:
        match command.WhichOneof("what"):
            case "look":
                if command.look.stacks:
                    self._watchfulness.disturbed(self._clock())
                for (stacks, recorder, history), ranks in by_depth(command.look).items():
                    found = self._observer.deep(ranks, stacks=stacks, recorder=recorder, history=history)
                    self._found.extend(only(detail, stacks, recorder, history) for detail in found)
            case "dump" if self._dump is not None:
                result.folder = str(self._dump(list(command.dump.ranks), command.dump.incident))
            case "end_rank":
                pid = command.end_rank.pid
                if self._pids.get(command.end_rank.rank) != pid:
                    raise ValueError(f"rank {command.end_rank.rank} is not process {pid}: nothing is ended")
                os.kill(pid, signal.SIGKILL)
            case "digest":
                ask_all(self._observer, command.digest)
            case what:
                raise ValueError(f"this agent cannot {what}")
