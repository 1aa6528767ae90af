"""What the aggregator asks of an agent, taken apart: which ranks, and how closely they are to be looked at."""

from diagd.daemon.agent.parts import Looks
from diagd.daemon.state.model import Detail
from diagd.probes.box.requests import Request, Target
from diagd.proto.v1.agent_pb2 import DigestCommand, LookCommand

Deep = tuple[bool, bool, bool]  # stacks, recorder, history


def ask_all(observer: Looks, command: DigestCommand) -> None:
    """Ask each rank; what fails for one is said after the others were asked."""
    failed = []
    for one in command.requests:
        targets = tuple(Target(target.row, target.first, target.stop, target.parts) for target in one.targets)
        try:
            observer.ask(one.rank, one.pid, Request(one.serial, one.step, one.everything, targets, one.sums))
        except (OSError, ValueError) as exc:
            failed.append(str(exc))
    if failed:
        raise ValueError("; ".join(failed))


def only(detail: Detail, stacks: bool, recorder: bool, history: bool) -> Detail:
    """Without what was not asked for: an observer repeats what it saw before, and the state still has that."""
    dropped: dict[str, object] = {}
    if not stacks:
        dropped.update(stacks=(), looks=())
    if not recorder:
        dropped.update(recorder=())
    if not history:
        dropped.update(history=())
    return detail.with_(**dropped) if dropped else detail


def by_depth(look: LookCommand) -> dict[Deep, list[int]]:
    """The ranks by what is to be seen of them, so that ranks alike are looked at together."""
    stacks, recorder, history = set(look.stacks), set(look.recorder), set(look.history)
    groups: dict[Deep, list[int]] = {}
    for rank in sorted(stacks | recorder | history):
        groups.setdefault((rank in stacks, rank in recorder, rank in history), []).append(rank)
    return groups
