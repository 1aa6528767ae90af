"""Three ranks write to one sqlite file; one keeps its transaction open over the next training step."""

import os
import sqlite3
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def open_runs(rank):
    db = sqlite3.connect("runs.sqlite", timeout=3600, isolation_level=None)
    if rank == 0:
        db.execute("create table if not exists metric(rank int, step int, loss real)")
    dist.barrier()
    return db


def record(db, rank, step, loss):
    db.execute("begin immediate")
    db.execute("insert into metric values (?, ?, ?)", (rank, step, loss))
    db.execute("commit")


def record_later(db, rank, step, loss):
    """Commit with the next record, to save a flush."""
    db.execute("begin immediate")
    db.execute("insert into metric values (?, ?, ?)", (rank, step, loss))


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    db = open_runs(rank)
    model = DDP(nn.Sequential(nn.Linear(11, 44), nn.Tanh(), nn.Linear(44, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 2500):
        x = torch.randn(16, 11)
        loss = (model(x)[:, 0] - x.prod(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if step % 40 == 0 and rank == step // 40 % 3:
            print(f"step {step} rank {rank} loss {loss.item():.3f}", flush=True)
            if step == 200:
                record_later(db, rank, step, loss.item())  # rank 2's turn
            else:
                record(db, rank, step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
