"""What the agent's loop needs of those that look at ranks and that carry what was seen."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from diagd.daemon.state.model import Detail, Facts
from diagd.daemon.state.scalars import SignalNews
from diagd.daemon.state.tensors import LedgerNews
from diagd.probes.box.requests import Request
from diagd.proto.v1.agent_pb2 import CommandResult


class Looks(Protocol):
    """What the agent needs of an observer of one job's ranks on this node."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not watched, and why, of which no rank tells."""

    def undisturbed(self) -> AbstractContextManager[None]:
        """While it lasts, what a dump makes the ranks do does not count as theirs."""

    def look(self, now_s: float) -> list[Facts]:
        """The numbers of all ranks."""

    def gets_on(self) -> bool:
        """Whether all ranks have done something since they were looked at, or glanced at, last; at hardly any cost."""

    def details(self, ranks: Iterable[int]) -> list[Detail]:
        """What else can be read at little cost."""

    def deep(
        self, ranks: Iterable[int], stacks: bool = True, recorder: bool = True, history: bool = True
    ) -> list[Detail]:
        """What takes up to seconds to see."""

    def ledgers(self, anew: bool) -> list[LedgerNews]:
        """What is new in the ranks' ledgers of tensors; `anew`: whoever was told before is gone."""

    def signals(self, anew: bool) -> list[SignalNews]:
        """Likewise of their scalars."""

    def ask(self, rank: int, pid: int, request: Request) -> None:
        """Have a rank digest tensors out of turn; it is not waited for."""


class Uplink(Protocol):
    """Where what was seen goes; none of its methods blocks."""

    @property
    def connections(self) -> int:
        """How often it has found an aggregator, which then may be another one."""

    def send(
        self, facts: Sequence[Facts], details: Sequence[Detail], now_s: float, ledgers: Sequence[LedgerNews] = (),
        signals: Sequence[SignalNews] = (),
    ) -> None:  # fmt: skip
        """One look."""

    def answer(self, result: CommandResult) -> None:
        """What became of a command."""
