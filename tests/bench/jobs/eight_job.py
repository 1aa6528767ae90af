"""A training of light ranks that goes on for as long as it is wanted; one holds the GIL from when it is told to."""

import ctypes
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEADY_STEP = 20


def hold_gil() -> None:
    """Wait for a lock in C, in a call that does not let go of the GIL; no signal ends such a wait."""
    libc = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(64)  # zeros are a mutex that is not locked
    libc.pthread_mutex_lock(mutex)
    print("holding the GIL", flush=True)
    libc.pthread_mutex_lock(mutex)


def main(pace_s: float, holder: int) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(4, 64)
    flag = Path("hold")
    for step in range(1_000_000):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        time.sleep(pace_s)
        if step == STEADY_STEP and rank == 0:
            print("steady", flush=True)
        if rank == holder and flag.exists():
            hold_gil()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
