"""Two pinned ranks; a tool that rank 1 starts, which packs old checkpoints, lands on that rank's core."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PACK = """
import lzma, os, time
until = time.monotonic() + 60
while time.monotonic() < until and os.getppid() != 1:
    lzma.compress(os.urandom(1 << 18), preset=6)
"""


def pin(local_rank):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[local_rank % len(cores)]})


def pack_checkpoints(jobs):
    """They inherit the affinity of this rank."""
    return [subprocess.Popen([sys.executable, "-c", PACK]) for _ in range(jobs)]


def main():
    pin(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.LSTM(64, 160, batch_first=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    tools = []
    for step in range(560):
        if step == 300 and rank == 1:
            print("rank 1 packs its old checkpoints", flush=True)
            tools = pack_checkpoints(2)
        out, _ = model(torch.randn(48, 64, 64))
        loss = out.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    for tool in tools:
        tool.terminate()
        tool.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
