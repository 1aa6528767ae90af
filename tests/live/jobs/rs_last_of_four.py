"""Four ranks with a send/recv ring and an all-reduce; the last one stops itself, as a debugger's trap would."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


def trap_later(delay_s):
    def trap():
        print(f"rank {dist.get_rank()}: trapped", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)

    threading.Timer(delay_s, trap).start()


def pass_on(value, rank, world):
    incoming = torch.empty_like(value)
    work = dist.isend(value, (rank + 1) % world)
    dist.recv(incoming, (rank - 1) % world)
    work.wait()
    return incoming


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(4000):
        if rank == world - 1 and step == 200:
            trap_later(0.3)
        x = pass_on(torch.randn(8, 32), rank, world)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
