"""One process, a gloo group of one rank: what a collective and a step take with the probes' wrappers and without.

The wrappers are taken away and put back between blocks of calls, in the same process.
"""

import ctypes
import json
import sys
import time
import types
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from diagd.probes import start
from diagd.probes.registry import PROBES
from diagd.probes.state import STATE

new_instance_method = ctypes.pythonapi.PyInstanceMethod_New
new_instance_method.argtypes, new_instance_method.restype = [ctypes.py_object], ctypes.py_object

PER_COLLECTIVE = ("collectives", "waits")
PER_STEP = ("collectives", "waits", "stores", "steps", "backward", "data", "evaluation")


def remove(names: tuple[str, ...]) -> None:
    for name in names:
        import_module(f"diagd.probes.{name}").remove()
    for owner in (c10d.ProcessGroup, c10d.Work, c10d.Store):
        bind_again(owner)


def bind_again(owner: type) -> None:
    """A method of a C++ class that was read from it and set again is a plain function, which knows no self."""
    for name, value in list(vars(owner).items()):
        if isinstance(value, types.BuiltinFunctionType):
            setattr(owner, name, new_instance_method(value))


def install(names: tuple[str, ...]) -> None:
    """As the start did; what an earlier life has asked to be told of switches is told only once."""
    for spec in PROBES:
        if spec.name in names:
            listeners = list(STATE.listeners)
            for module in spec.modules:
                if module in sys.modules:
                    import_module(f"diagd.probes.{spec.name}").install(start.SWITCHES[spec.name], sys.modules[module])
            STATE.listeners[:] = listeners


def compare(call: Callable[[], Any], names: tuple[str, ...], blocks: int, calls: int) -> dict[str, list[float]]:
    """Microseconds per call: without wrappers, with them, and with them but switched off."""
    found: dict[str, list[float]] = {"without": [], "with": [], "switched_off": []}
    for block in range(blocks):
        for kind in rotated(list(found), block):
            if kind == "without":
                remove(names)
            STATE.record(kind != "switched_off")
            found[kind].append(timed(call, calls))
            if kind == "without":
                install(names)
    STATE.record(True)
    return found


def rotated(kinds: list[str], by: int) -> list[str]:
    """Each comes first, second and last equally often: a place in the order has effects of its own."""
    return kinds[by % len(kinds) :] + kinds[: by % len(kinds)]


def timed(call: Callable[[], Any], calls: int) -> float:
    """CPU time of this thread, which is all that the wrappers run in: what else the machine does stays out.

    A rank gets its wrappers once. Here they come and go, and Python forgets then what it had made fast of all code that
    they touch, and makes it so again only step by step (PEP 659); so three times as many calls go before.
    """
    for _ in range(3 * calls):
        call()
    began = time.thread_time_ns()
    for _ in range(calls):
        call()
    return (time.thread_time_ns() - began) / calls / 1000


def make_step(steps: int) -> Callable[[], Any]:
    """A step with all that a loop has, and as little computing as there can be."""
    model = DistributedDataParallel(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    # One epoch, as beginning another is no part of a step.
    batches = iter(DataLoader(TensorDataset(torch.randn(steps, 4)), batch_size=1))

    def step() -> None:
        (batch,) = next(batches)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    return step


def main(blocks: int) -> None:
    dist.init_process_group("gloo")
    tensor = torch.zeros(16)
    assert STATE.recording, "the probes are not on"
    result = {
        "all_reduce": compare(lambda: dist.all_reduce(tensor), PER_COLLECTIVE, blocks, 300),
        "all_reduce, async": compare(
            lambda: dist.all_reduce(tensor, async_op=True).wait(), PER_COLLECTIVE, blocks, 300
        ),
        "broadcast": compare(lambda: dist.broadcast(tensor, 0), PER_COLLECTIVE, blocks, 300),
        "step": compare(make_step(blocks * 3 * 400), PER_STEP, blocks, 100),
    }
    Path("micro.json").write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
