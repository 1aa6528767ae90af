"""Runs drills, a few at a time, and leaves nothing behind however it ends."""

import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from diagd.daemon.selftest.drills import Drill
from diagd.daemon.selftest.running import Result, Running
from diagd.daemon.selftest.trainer import Trainer

LOOK_S = 0.1
AT_ONCE = 2  # each costs a core while it imports torch


def run_drills(
    drills: Sequence[Drill], trainer: Trainer, progress: Callable[[Sequence[str]], None]
) -> Generator[Result, None, None]:
    """Each drill's result as it comes; to close the generator ends all that run.

    Args:
        drills: Which, in their order.
        trainer: The Python that has torch.
        progress: Told at each look, of the names of those that run; what it raises ends all.
    """
    folder = Path(tempfile.mkdtemp(prefix="diagd-selftest-"))
    waiting, running = deque(drills), list[Running]()
    try:
        while waiting or running:
            while waiting and _fits(waiting[0], [one.drill for one in running]):
                running.append(Running(waiting.popleft(), trainer, folder))
            progress([one.drill.name for one in running])
            time.sleep(LOOK_S)
            for one in list(running):
                if (result := one.look()) is not None:
                    one.close()
                    running.remove(one)
                    yield result
    finally:
        for one in running:
            one.close()
        shutil.rmtree(folder, ignore_errors=True)


def _fits(drill: Drill, running: Sequence[Drill]) -> bool:
    if not running:
        return True
    cores = len(os.sched_getaffinity(0))
    return len(running) < min(AT_ONCE, cores) and not any(one.alone for one in (drill, *running))
