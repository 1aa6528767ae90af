"""What this node itself saw of its ranks, for the report where the aggregator elsewhere gives none."""

import threading
from collections.abc import Sequence
from typing import Any

from diagd.daemon.agent.parts import Uplink
from diagd.daemon.aggregator.reporting import job_report
from diagd.daemon.state.job import JobState
from diagd.daemon.state.model import Detail, Facts
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.tensors import LedgerNews
from diagd.proto.v1.agent_pb2 import CommandResult


class Seen:
    """The agent's way to the aggregator; keeps what went over it, and judges nothing, as other nodes are not in it."""

    def __init__(self, uplink: Uplink, job_id: str, hang_after_s: float) -> None:
        self._uplink = uplink
        self._lock = threading.Lock()
        self._state = JobState(job_id=job_id, hang_after_s=hang_after_s)

    @property
    def connections(self) -> int:
        """How often it has found an aggregator."""
        return self._uplink.connections

    def send(
        self, facts: Sequence[Facts], details: Sequence[Detail], now_s: float, ledgers: Sequence[LedgerNews] = (),
        signals: Sequence[SignalNews] = (),
    ) -> None:  # fmt: skip
        """One look."""
        self._uplink.send(facts, details, now_s, ledgers, signals)
        with self._lock:
            self._state.apply(facts, details, now_s)

    def answer(self, result: CommandResult) -> None:
        """What became of a command."""
        self._uplink.answer(result)

    def started(self, command: Sequence[str], started_s: float) -> None:
        """The launcher says what runs."""
        with self._lock:
            self._state.command, self._state.started_s = tuple(command), started_s

    def ended(self, exit_code: int | None, now_s: float) -> None:
        """The launcher has ended."""
        with self._lock:
            self._state.end(exit_code, now_s)

    def report(self, note: str) -> dict[str, Any]:
        """The ranks of this node, after report.schema.json, and why there is no verdict."""
        with self._lock:
            report = job_report(self._state, ())
        return {**report, "judged": False, "notes": [note, *report["notes"]]}
