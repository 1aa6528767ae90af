"""Two ranks; the cluster's reaper ends one of the two processes from outside."""

import os
import subprocess
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def start_reaper(delay_s):
    """Somebody else's tool, in a session of its own."""
    pid = os.getpid()
    subprocess.Popen(
        ["sh", "-c", f"sleep {delay_s}; echo reaper: ending {pid}; kill -TERM {pid}"], start_new_session=True
    )


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(10)
    model = DDP(nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8)))
    optimizer = torch.optim.Rprop(model.parameters())
    for step in range(3000):
        if rank == 1 and step == 200:
            start_reaper(0.3)
        x = torch.randn(32, 8)
        loss = (model(x) - x.exp()).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
