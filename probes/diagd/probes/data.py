"""Waiting for data: the time inside a DataLoader iterator's __next__, and what it gave."""

from typing import Any

from diagd.probes import batches, phases
from diagd.probes.box.layout import Phase
from diagd.probes.guard import Patches, Probe, wrapper
from diagd.probes.state import STATE

_patches = Patches()


def install(probe: Probe, module: Any) -> None:
    """torch.utils.data.dataloader is there."""
    _patches.replace(module._BaseDataLoaderIter, "__next__", wrapper(probe, _before, _after, _failed))


def remove() -> None:
    """Put torch's own method back."""
    _patches.undo()


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    phases.enter(Phase.DATA)
    return args[0]


def _after(token: Any, result: Any) -> None:
    phases.enter(Phase.EVAL if STATE.evaluating else Phase.FORWARD)
    phases.forward_begins()
    batches.fetched(token, result)


def _failed(token: Any, error: BaseException) -> None:
    phases.enter(Phase.EVAL if STATE.evaluating else Phase.OTHER)  # StopIteration: the epoch is over
