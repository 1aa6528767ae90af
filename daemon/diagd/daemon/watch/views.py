"""Where a watcher gets its verdicts from: the aggregator inside it, or one elsewhere."""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import grpc

from diagd.daemon.agent.introduction import Identity
from diagd.daemon.agent.loop import AgentLoop
from diagd.daemon.agent.stream import CHANNEL_OPTIONS, Stream
from diagd.daemon.agent.wire import detail_message, facts_columns, ledger_message, signals_message
from diagd.daemon.aggregator.hub import Hub
from diagd.daemon.aggregator.loop import JobLoop, stored_form
from diagd.daemon.incidents.incident import Incident, incident_from_json
from diagd.daemon.state.model import Detail, Facts
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.tensors import LedgerNews
from diagd.daemon.store.store import Store, StoreError
from diagd.daemon.watch.unjudged import Seen
from diagd.proto.v1.agent_pb2 import Command, CommandResult, ConnectRequest, Window
from diagd.proto.v1.job_pb2 import GetReportRequest
from diagd.proto.v1.job_pb2_grpc import JobServiceStub

log = logging.getLogger(__name__)

ASK_EVERY_S = 1.0
ASK_TIMEOUT_S = 3.0
LAST_WORD_S = 2.0


class View(Protocol):
    """The verdicts on one job."""

    def poll(self) -> list[Incident]:
        """The incidents that changed since the last call."""

    @property
    def incidents(self) -> Sequence[Incident]:
        """All, in report order."""

    @property
    def revision(self) -> int:
        """Grows whenever the report changes."""

    def report(self) -> dict[str, Any] | None:
        """The report, where there is one."""

    def started(self, command: Sequence[str], started_s: float) -> None:
        """The launcher says what runs."""

    def stopping(self) -> None:
        """The job is being ended on purpose."""

    def dumped(self, incident: Incident, folder: str) -> None:
        """A dump was taken."""

    def finish(self, exit_code: int | None) -> None:
        """The launcher has ended, and the last look was sent."""


class LocalUplink:
    """The agent's way to the aggregator in the same process; also that one's way back."""

    def __init__(self, hub: Hub, identity: Identity) -> None:
        self._hub = hub
        self._identity = identity
        self._seq = 0
        self.agent: AgentLoop | None = None
        hub.connect(self, identity.hello(1))

    @property
    def node(self) -> str:
        """The node's name."""
        return self._identity.node

    @property
    def connections(self) -> int:
        """Always the one."""
        return 1

    def command(self, command: Command) -> None:
        """Hand a command to the agent."""
        if self.agent is not None:
            self.agent.command(command)

    def send(
        self, facts: Sequence[Facts], details: Sequence[Detail], now_s: float, ledgers: Sequence[LedgerNews] = (),
        signals: Sequence[SignalNews] = (),
    ) -> None:  # fmt: skip
        """Hand a look to the aggregator."""
        columns, messages = facts_columns(facts), [detail_message(d) for d in details]
        tensors, scalars = [ledger_message(news) for news in ledgers], [signals_message(news) for news in signals]
        with self._hub.lock:
            self._seq += 1
            window = Window(
                seq=self._seq, time_s=now_s, facts=columns, details=messages, ledgers=tensors, signals=scalars
            )
            self._put(ConnectRequest(window=window))

    def answer(self, result: CommandResult) -> None:
        """Hand an answer to the aggregator."""
        self._put(ConnectRequest(result=result))

    def _put(self, request: ConnectRequest) -> None:
        self._hub.receive(self, self._identity.job_id, self._identity.session, request)


class EmbeddedView:
    """Judges in this process."""

    def __init__(self, hub: Hub, loop: JobLoop, store: Store | None, hang_after_s: float) -> None:
        self._hub, self._loop, self._store = hub, loop, store
        self._hang_after_s = hang_after_s

    def poll(self) -> list[Incident]:
        """Judge."""
        with self._hub.lock:
            changed = [incident for _, incidents in self._hub.tick() for incident in incidents]
            self._save(changed)
            return changed

    @property
    def incidents(self) -> Sequence[Incident]:
        """All, in report order."""
        return self._loop.book.incidents

    @property
    def revision(self) -> int:
        """Grows whenever the report changes."""
        return self._loop.revision

    def report(self) -> dict[str, Any]:
        """The report."""
        with self._hub.lock:
            return self._loop.report()

    def started(self, command: Sequence[str], started_s: float) -> None:
        """The launcher says what runs."""
        with self._hub.lock:
            self._loop.started(command, started_s, self._hang_after_s, self._hub.clock())
        self._save_run({"command": list(command), "started_s": started_s})

    def stopping(self) -> None:
        """The job is being ended on purpose."""
        with self._hub.lock:
            self._loop.stopping(self._hub.clock())

    def dumped(self, incident: Incident, folder: str) -> None:
        """A dump was taken."""
        with self._hub.lock:
            incident.dump = folder
            self._loop.touch()
            self._save([incident])

    def finish(self, exit_code: int | None) -> None:
        """The launcher has ended."""
        with self._hub.lock:
            self._loop.ended(exit_code, self._hub.clock())

    def _save(self, incidents: Sequence[Incident]) -> None:
        if self._store is not None and incidents:
            try:
                self._store.save_incidents(self._loop.state.job_id, [stored_form(i) for i in incidents])
            except StoreError as exc:
                log.warning("%s", exc)

    def _save_run(self, facts: dict[str, Any]) -> None:
        if self._store is not None:
            try:
                self._store.save_run(self._loop.state.job_id, facts)
            except StoreError as exc:
                log.warning("%s", exc)


class RemoteView:
    """Asks an aggregator elsewhere, to which this node's agent reports."""

    def __init__(self, target: str, job_id: str, stream: Stream, seen: Seen) -> None:
        self._target = target
        self._job_id = job_id
        self._seen = seen
        self._note = ""  # what became of the aggregator, at the end
        self._channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._stub = JobServiceStub(self._channel)
        self._stream = stream
        self._incidents: dict[str, Incident] = {}
        self._said: dict[str, dict[str, Any]] = {}
        self._dumps: dict[str, str] = {}
        self._report: dict[str, Any] | None = None
        self._revision = 0
        self._next_s = 0.0
        self._unsaid: list[Incident] = []
        self.changes = 0

    def poll(self) -> list[Incident]:
        """Ask, now and then."""
        changed, self._unsaid = self._unsaid, []
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + ASK_EVERY_S
            changed += self._ask()
        return changed

    def _ask(self) -> list[Incident]:
        request = GetReportRequest(job_id=self._job_id, known_revision=self._revision)
        try:
            answer = self._stub.GetReport(request, timeout=ASK_TIMEOUT_S)
        except grpc.RpcError as exc:
            log.debug("the aggregator does not answer: %s", exc)
            return []
        if not answer.report:
            return []
        self._revision = answer.revision
        self._report = json.loads(answer.report)
        return self._take(self._report["incidents"] if self._report else [])

    def _take(self, found: Sequence[dict[str, Any]]) -> list[Incident]:
        self.changes += 1
        changed = []
        for said in found:
            if self._said.get(said["id"]) != said:
                self._said[said["id"]] = dict(said)
                incident = incident_from_json(said)
                incident.dump = self._dumps.get(incident.id, incident.dump)
                self._incidents[incident.id] = incident
                changed.append(incident)
        return changed

    @property
    def incidents(self) -> Sequence[Incident]:
        """All, in report order."""
        return sorted(self._incidents.values(), key=lambda i: i.order)

    @property
    def revision(self) -> int:
        """Grows whenever the report changes."""
        return self.changes

    def report(self) -> dict[str, Any] | None:
        """The last report that was had, with this node's dumps; at the end, without one, what this node itself saw."""
        if self._report is None:
            return self._seen.report(self._note) if self._note else None
        notes = [*self._report.get("notes", ()), *filter(None, [self._note])]
        return {**self._report, "incidents": [incident.as_json() for incident in self.incidents], "notes": notes}

    def started(self, command: Sequence[str], started_s: float) -> None:
        """The launcher says what runs: the agent passes it on."""
        self._seen.started(command, started_s)
        self._stream.introduce(replace(self._stream.identity, command=tuple(command), started_s=started_s))

    def stopping(self) -> None:
        """Not known elsewhere yet."""

    def dumped(self, incident: Incident, folder: str) -> None:
        """A dump was taken on this node."""
        self._dumps[incident.id] = incident.dump = folder
        self.changes += 1

    def finish(self, exit_code: int | None) -> None:
        """Say goodbye, and wait a little for the last verdicts; other nodes may take longer to end."""
        self._seen.ended(exit_code, time.time())
        if not self._stream.finish("the job has ended on this node", exit_code):
            self._note = self._why_not_judged()
            self.changes += 1
            return
        deadline = time.monotonic() + LAST_WORD_S
        while time.monotonic() < deadline:
            self._unsaid += self._ask()
            if self._report is not None and self._report["job"]["ended_at"] is not None:
                return
            time.sleep(0.1)
        if self._report is None:
            self._note = f"the aggregator {self._target} gave no report; nothing was judged"

    def _why_not_judged(self) -> str:
        if not self._stream.connections:
            return f"the aggregator {self._target} was never reached; nothing was judged"
        return f"the aggregator {self._target} did not take the last look; how the job ended here was not judged"

    def close(self) -> None:
        """Let go of the connection."""
        self._channel.close()
