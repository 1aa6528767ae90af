"""One job in the aggregator: inputs are applied and judged, what to look at next comes out. No clock, no threads."""

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diagd.daemon.aggregator.calm import Calm
from diagd.daemon.aggregator.judging import SAID, Attends, Judge, Link
from diagd.daemon.aggregator.reporting import job_report
from diagd.daemon.aggregator.saving import Saves
from diagd.daemon.aggregator.suspicions import Suspicions
from diagd.daemon.aggregator.sweeping import Serials, Sweeps
from diagd.daemon.incidents.incident import Incident, incident_from_json
from diagd.daemon.state.apply import BadMessage, apply_window, ledger_values, signal_values, window_values
from diagd.daemon.state.job import JobState
from diagd.proto.v1.agent_pb2 import Command, CommandResult, ConnectRequest, DigestRequest, LookCommand
from diagd.proto.v1.record_pb2 import JobEnded, JobStarted, JobStopping, RecordEntry

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 2.0  # at what training computes
WITHOUT_NEWS_S = 0.9  # time alone changes a verdict too, but slowly
_STORED = ("key", "goes_on", "explains", "times_out_s")  # of an incident, beside what a report says
LONGER_S = 2.5  # where all ranks went on; agents look at such a job every other second, and sooner where one does not


@dataclass(slots=True)
class Counters:
    """The loop's own health."""

    windows: int = 0
    rejected: int = 0
    dropped_by_agents: dict[str, int] = field(default_factory=dict)
    deep_looks: int = 0
    failures: int = 0
    ticks: int = 0
    tick_seconds: float = 0.0


class JobLoop:
    """One job: call `receive` with what comes in, and `tick` regularly."""

    def __init__(
        self,
        job_id: str,
        judge: Judge,
        *,
        restored: Sequence[Incident] = (),
        hang_after_s: float = 60.0,
        record: Callable[[RecordEntry], None] | None = None,
    ) -> None:
        self.state = JobState(job_id=job_id, hang_after_s=hang_after_s, look_again_s=LOOK_AGAIN_S)
        self.book = judge.make_book(restored)
        self.counters = Counters()
        self.revision = 1
        self.incidents_opened: dict[tuple[str, str], int] = {}
        self._judge = judge
        self._record = record
        self._judged_s = self._attended_s = -WITHOUT_NEWS_S
        self._news = False  # since it was asked whom to look at
        self._calm = Calm()
        self._inbox: deque[RecordEntry] = deque()
        self._links: dict[str, Link] = {}
        self._rank_nodes: dict[int, str] = {}
        self.extra: dict[int, dict[str, float]] = {}
        self._suspicions = Suspicions()
        serials = Serials()
        self._sweeps, self.saves = Sweeps(serials), Saves(serials)
        self._next_command = 1
        self._stopping_attempt = 0
        self._severities: dict[str, Any] = {i.id: i.severity for i in restored}
        self._results: deque[CommandResult] = deque(maxlen=100)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose agents are connected."""
        return tuple(sorted(self._links))

    def started(self, command: Sequence[str], started_s: float, hang_after_s: float, now_s: float) -> None:
        """The launcher says what runs."""
        started = JobStarted(command=command, started_s=started_s, hang_after_s=hang_after_s)
        self.put(RecordEntry(received_s=now_s, job_id=self.state.job_id, started=started))

    def ended(self, exit_code: int | None, now_s: float) -> None:
        """The launcher has ended."""
        ended = JobEnded(exit_code=exit_code)
        self.put(RecordEntry(received_s=now_s, job_id=self.state.job_id, ended=ended))

    def stopping(self, now_s: float) -> None:
        """The job, or a rank of it, is being ended on purpose."""
        self.put(RecordEntry(received_s=now_s, job_id=self.state.job_id, stopping=JobStopping()))

    def receive(self, link: Link, request: ConnectRequest, now_s: float) -> None:
        """Take a message of an agent's."""
        self.put(RecordEntry(received_s=now_s, job_id=self.state.job_id, node=link.node, request=request))

    def put(self, entry: RecordEntry) -> None:
        """Take an input; from any thread."""
        self._inbox.append(entry)

    def connect(self, link: Link) -> None:
        """A node's agent is there; a newer link of the same node wins."""
        self._links[link.node] = link
        self._news = True

    def disconnect(self, link: Link) -> None:
        """A node's agent is gone, for now."""
        if self._links.get(link.node) is link:
            del self._links[link.node]
            self._suspicions.lost()

    def tick(self, now_s: float) -> list[Incident]:
        """Apply what came in and judge; the incidents that opened, changed or were resolved."""
        self.counters.ticks += 1
        news = self._drain()
        self._news = self._news or news
        self.state.tick(now_s)
        if self.state.stopping_s is not None and self.state.attempt > self._stopping_attempt:
            self.state.stopping_s = None  # it has started again: deaths count anew
        if not news and now_s - self._judged_s < self._patience_s:
            return []
        if not self._suspicions and not self.book.unsure and self._calm.lasts(self.state):
            return []
        self._judged_s = now_s
        self._calm.judged(self.state)
        changed = self._judge_now()
        if changed:
            self._count(changed)
            self.revision += 1
        return changed

    @property
    def _patience_s(self) -> float:
        """For how long nothing is judged where there is no news."""
        return LONGER_S if self._calm.went_on and not self._suspicions else WITHOUT_NEWS_S

    def commands(self, now_s: float) -> list[tuple[Link, Command]]:
        """The deep looks that are due, none of a rank that is being looked at; and digests out of turn."""
        if self.state.ended_s is not None or not self._links:
            return []
        if not (self._news or self._suspicions) and now_s - self._attended_s < self._patience_s:
            return []
        self._news, self._attended_s = False, now_s
        return [*self._looks(now_s), *self._digests(now_s)]

    def _digests(self, now_s: float) -> list[tuple[Link, Command]]:
        """What ranks are to digest; nothing while some rank could not be told."""
        if self.state.stopping_s is not None or any(
            self._rank_nodes.get(rank) not in self._links for rank in self.state.tensors.ranks
        ):
            return []
        asked = self._requests(now_s)
        commands: dict[str, Command] = {}
        for rank, request in asked.items():
            node = self._rank_nodes[rank]
            commands[node] = commands.get(node) or self.new_command()
            commands[node].digest.requests.append(request)
        if asked:
            log.info("the ranks digest their tensors after step %d", next(iter(asked.values())).step)
        return [(self._links[node], command) for node, command in commands.items()]

    def _requests(self, now_s: float) -> dict[int, DigestRequest]:
        """One at a time: what somebody wants to save, else what is suspected."""
        if self._sweeps.asked is None and (wanted := self.saves.due(self.state, now_s)):
            return wanted
        return {} if self.saves.busy else self._sweeps.due(self.state, self._judge.suspects(self.state), now_s)

    def _looks(self, now_s: float) -> list[tuple[Link, Command]]:
        attention = self._judge.attention(self.state)
        wanted = {*attention.stacks, *attention.recorder, *attention.history}
        due = self._suspicions.due(wanted, now_s)
        made = []
        for node in sorted({self._rank_nodes[r] for r in due if r in self._rank_nodes}):
            link = self._links.get(node)
            ranks = {r for r in due if self._rank_nodes.get(r) == node}
            if link is not None:
                made.append((link, self._look(ranks, attention, now_s)))
        return made

    def report(self) -> dict[str, Any]:
        """The job, after report.schema.json."""
        return job_report(self.state, self.book.incidents)

    def touch(self) -> None:
        """Something of the report has changed outside."""
        self.revision += 1

    def take_results(self) -> list[CommandResult]:
        """What became of commands since the last call."""
        taken = list(self._results)
        self._results.clear()
        return taken

    def new_command(self) -> Command:
        """An empty command with its number."""
        command = Command(id=self._next_command)
        self._next_command += 1
        return command

    def node_of(self, rank: int) -> str | None:
        """The node that the rank's numbers come from."""
        return self._rank_nodes.get(rank)

    def _drain(self) -> bool:
        """Apply what came in; whether there was anything."""
        news = bool(self._inbox)
        while self._inbox:
            entry = self._inbox.popleft()
            try:
                self._apply(entry)
            except BadMessage as exc:
                self.counters.rejected += 1
                log.warning("a message of %s was refused: %s", entry.node, exc)
                continue
            if self._record is not None:
                self._record(entry)
        return news

    def _apply(self, entry: RecordEntry) -> None:
        which = entry.WhichOneof("input")
        if which == "request":
            self._apply_request(entry.node, entry.request)
        elif which == "started":
            self.state.command = tuple(entry.started.command)
            self.state.started_s = entry.started.started_s
            self.state.hang_after_s = entry.started.hang_after_s or self.state.hang_after_s
            self.revision += 1
        elif which == "ended":
            code = entry.ended.exit_code if entry.ended.HasField("exit_code") else None
            self.state.end(code, entry.received_s)
            self.revision += 1
        elif which == "stopping":
            self.state.stopping_s, self._stopping_attempt = entry.received_s, self.state.attempt

    def _apply_request(self, node: str, request: ConnectRequest) -> None:
        which = request.WhichOneof("message")
        if which == "window":
            window = request.window
            facts, details = window_values(window)
            ledgers, signals = ledger_values(window), signal_values(window)
            self.counters.windows += 1
            self.counters.dropped_by_agents[node] = window.dropped_windows
            for rank in {*(f.rank for f in facts), *(d.rank for d in details)}:
                self._rank_nodes[rank] = node
            for fact in facts:
                if fact.extra:  # of a look; what another look told stays
                    self.extra.setdefault(fact.rank, {}).update(fact.extra)
            apply_window(self.state, facts, details, window.time_s)
            self.state.tensors.apply(ledgers, self.state.world_size)
            self.state.signals.apply(signals)
        elif which == "hello":
            hello = request.hello
            self.state.command = self.state.command or tuple(hello.command)
            self.state.started_s = hello.started_s or self.state.started_s or hello.time_s
            self.revision += 1
            self.state.hang_after_s = hello.hang_after_s or self.state.hang_after_s
        elif which == "result":
            self._note_result(request.result)

    def _note_result(self, result: CommandResult) -> None:
        self._suspicions.answered(result.id)
        if result.error:
            log.warning("an agent could not do what it was asked: %s", result.error)
        self._results.append(result)

    def _judge_now(self) -> list[Incident]:
        failures = self.state.failures
        try:
            return self.book.update(self._judge.detect(self.state), self.state)
        except Exception:
            self.state.failures += 1
            if self.state.failures in SAID:
                log.exception("a judgement failed (%d times so far)", self.state.failures)
            return []
        finally:
            self.counters.failures += self.state.failures - failures

    def _count(self, changed: Iterable[Incident]) -> None:
        for incident in changed:
            if incident.id not in self._severities:
                key = (incident.kind, incident.severity.value)
                self.incidents_opened[key] = self.incidents_opened.get(key, 0) + 1
            self._severities[incident.id] = incident.severity

    def _look(self, ranks: set[int], attention: Attends, now_s: float) -> Command:
        command = self.new_command()
        command.look.CopyFrom(
            LookCommand(
                stacks=sorted(ranks.intersection(attention.stacks)),
                recorder=sorted(ranks.intersection(attention.recorder)),
                history=sorted(ranks.intersection(attention.history)),
            )
        )
        self._suspicions.asked(ranks, command.id, now_s)
        self.counters.deep_looks += 1
        return command


def stored_form(incident: Incident) -> dict[str, Any]:
    """What the store keeps of an incident: the report's form, and what only the book needs."""
    return {**incident.as_json(), **{name: getattr(incident, name) for name in _STORED}}


def restored_incident(stored: dict[str, Any]) -> Incident:
    """The inverse of `stored_form`."""
    incident = incident_from_json(stored)
    for name in _STORED:
        if name in stored:
            kept = stored[name]
            setattr(incident, name, tuple(kept) if isinstance(kept, list) else kept)
    return incident


def report_text(report: Mapping[str, Any]) -> str:
    """The report as it is served."""
    return json.dumps(report)
