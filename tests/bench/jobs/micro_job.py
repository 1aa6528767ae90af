"""One process, a gloo group of one rank: what a collective takes with the probes' wrappers and without.

The wrappers are taken away and put back between blocks of calls, in the same process. They are measured around a
backend that returns at once: with gloo's own thread at work, when this one falls asleep and is woken changes with a
microsecond, and costs more than what is measured. That is measured as well.

A step of a model that computes next to nothing, likewise, with the probes on and switched off: as it is between two
samples, which are as rare as a rank with such steps makes them.
"""

import ctypes
import json
import os
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

from diagd.probes import start
from diagd.probes.budget import BUDGET, MAX_STRIDE
from diagd.probes.registry import PROBES
from diagd.probes.state import STATE

new_instance_method = ctypes.pythonapi.PyInstanceMethod_New
new_instance_method.argtypes, new_instance_method.restype = [ctypes.py_object], ctypes.py_object

PER_COLLECTIVE = ("collectives", "waits")
WORKS = 64  # that are handed out in turn, as if they were new


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


def compare_steps(blocks: int, steps: int) -> dict[str, list[float]]:
    """Microseconds of the median step of each block."""
    one_step = training(torch.zeros(1, 2))
    BUDGET.widen = lambda *_: True  # type: ignore[method-assign]
    BUDGET.stride = MAX_STRIDE
    found: dict[str, list[float]] = {"without": [], "with": []}
    for block in range(-2, blocks):
        for kind in rotated(list(found), block):
            STATE.record(kind == "with")
            took = sorted(timed_once(one_step) for _ in range(steps))[steps // 2]
            if block >= 0:  # before that, what is looked at in the first steps alone
                found[kind].append(took)
    STATE.record(True)
    return found


def training(x: torch.Tensor) -> Callable[[], Any]:
    """A step of DDP with a reduction that is over at once, and with one collective of the script's own."""
    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    wrapped.register_comm_hook(None, reduced)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)

    def one_step() -> None:
        optimizer.zero_grad()
        loss = wrapped(x).sum()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())

    return one_step


def reduced(_: Any, bucket: c10d.GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def timed_once(call: Callable[[], Any]) -> float:
    began = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - began) / 1000


def quicken(tensor: torch.Tensor) -> None:
    """Put a backend in the place of gloo that has done at once what it is asked for."""
    works = [dist.all_reduce(tensor, async_op=True) for _ in range(WORKS)]
    for work in works:
        work.wait()
    remove(PER_COLLECTIVE)
    turn = iter(range(1 << 62))

    def begun(*_: Any) -> Any:
        return works[next(turn) % WORKS]

    def waited(*_: Any) -> bool:
        return True

    for owner, name, function in (
        (c10d.ProcessGroup, "allreduce", begun), (c10d.ProcessGroup, "broadcast", begun), (c10d.Work, "wait", waited),
    ):  # fmt: skip
        setattr(owner, name, function)
    install(PER_COLLECTIVE)


def main(blocks: int) -> None:
    dist.init_process_group("gloo")
    tensor = torch.zeros(16)
    assert STATE.recording, "the probes are not on"
    calls = {
        "all_reduce": lambda: dist.all_reduce(tensor),
        "all_reduce, async": lambda: dist.all_reduce(tensor, async_op=True).wait(),
        "broadcast": lambda: dist.broadcast(tensor, 0),
    }
    gloo = "all_reduce, gloo's thread at work"
    result = {gloo: compare(calls["all_reduce"], PER_COLLECTIVE, blocks, 300)}
    quicken(tensor)
    for name, call in calls.items():
        result[name] = compare(call, PER_COLLECTIVE, blocks, 300)
    result["a step with one collective"] = compare_steps(blocks, 300)
    Path("micro.json").write_text(json.dumps(result), encoding="utf-8")
    os._exit(0)  # there is no backend any more that would say goodbye


if __name__ == "__main__":
    main(int(sys.argv[1]))
