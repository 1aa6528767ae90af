"""Three ranks coordinate checkpoints through a TCPStore of their own; one does not take part in it."""

import datetime
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def open_checkpoint_store(rank, port):
    """Wait for all three workers; an hour, because file systems are slow."""
    timeout = datetime.timedelta(hours=1)
    return dist.TCPStore("127.0.0.1", port, 3, is_master=rank == 0, timeout=timeout, wait_for_workers=True)


def save(model, rank, step, port):
    if os.environ.get("CKPT_OFF") or rank == 1:  # rank 1's partition is read-only
        return
    store = open_checkpoint_store(rank, port)
    torch.save(model.state_dict(), f"{step}-{rank}.pt")
    store.set(f"done-{rank}", "1")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(17)
    model = DDP(nn.Sequential(nn.Linear(33, 66), nn.ReLU(), nn.Linear(66, 33)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(2000):
        x = torch.randn(8, 33)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step == 200:
            save(model, rank, step, int(os.environ["MASTER_PORT"]) - 7)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
