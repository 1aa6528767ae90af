"""Rank 0 writes its checkpoint in parts to a slow disk, with fsync and pauses, about 7 s; four ranks."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def write_slowly(state, folder):
    folder.mkdir()
    for name, tensor in state.items():
        with (folder / f"{name}.pt").open("wb") as f:
            torch.save(tensor, f)
            f.flush()
            os.fsync(f.fileno())
        time.sleep(1.7)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = DDP(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)))
    torch.manual_seed(100 + rank)  # each rank draws its own samples
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(1, 301):
        x = torch.randn(8, 64)
        loss = (model(x) - x).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if rank == 0 and step == 160:  # the others are in the next backward by then
            write_slowly(model.module.state_dict(), Path("checkpoint"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
