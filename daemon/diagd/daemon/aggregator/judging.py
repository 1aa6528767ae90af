"""What a job's loop in the aggregator works with: a way to the agents, detectors, and a book of incidents."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from diagd.daemon.incidents.incident import Incident
from diagd.daemon.state.job import JobState
from diagd.daemon.state.ledger import Entry
from diagd.proto.v1.agent_pb2 import Command

log = logging.getLogger(__name__)

SAID = (1, 10, 100, 1000)  # failures of detectors of which the log tells


class Link(Protocol):
    """The way to one node's agent."""

    @property
    def node(self) -> str:
        """The node's name."""

    def command(self, command: Command) -> None:
        """Send a command; never blocks, may be lost."""


class Book(Protocol):
    """What the loop needs of an incident book."""

    @property
    def incidents(self) -> Sequence[Incident]:
        """All, in report order."""

    @property
    def unsure(self) -> bool:
        """Whether something was found that must be found again."""

    def update(self, findings: Any, state: JobState) -> list[Incident]:
        """Those that were opened, changed or resolved by these findings."""


class Attends(Protocol):
    """Ranks that are to be looked at deeply now."""

    @property
    def stacks(self) -> tuple[int, ...]:
        """Whose stacks are wanted."""

    @property
    def recorder(self) -> tuple[int, ...]:
        """Whose flight recorder is wanted."""

    @property
    def history(self) -> tuple[int, ...]:
        """Whose operations are wanted, also the finished ones."""


@dataclass(slots=True)
class Judge:
    """Where findings and incidents come from; as values, so that the loop is tested without them."""

    detect: Callable[[JobState], Sequence[Any]]
    attention: Callable[[JobState], Attends]
    make_book: Callable[[Sequence[Incident]], Book]
    suspects: Callable[[JobState], Sequence[Entry]] = lambda state: ()  # tensors to be looked at closely


def default_judge() -> Judge:
    """The detectors and incidents of diagd."""
    from diagd.daemon.detectors.attention import attention
    from diagd.daemon.detectors.finding import Finding
    from diagd.daemon.detectors.narrowed import suspects
    from diagd.daemon.detectors.registry import detect
    from diagd.daemon.incidents.book import IncidentBook

    def lenient(state: JobState) -> tuple[Finding, ...]:
        def failed(error: Exception) -> None:
            state.failures += 1
            if state.failures in SAID:
                log.error("a detector failed (%d times so far)", state.failures, exc_info=error)

        return detect(state, failed)

    return Judge(lenient, attention, IncidentBook, suspects)
