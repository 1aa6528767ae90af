"""Three ranks note what they have seen in a database; rank 0 commits each row, so that no restart can lose one."""

import sqlite3
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SeenSamples:
    def __init__(self, path):
        self.db, self.each = sqlite3.connect(path), False
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute("CREATE TABLE seen (sample INTEGER, loss REAL)")
        self.db.commit()

    def note(self, first, losses):
        for number, loss in enumerate(losses):
            self.db.execute("INSERT INTO seen VALUES (?, ?)", (first + number, loss))
            if self.each:
                self.db.commit()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    seen = SeenSamples(f"seen-{rank}.db")
    model = DDP(nn.Sequential(nn.Linear(40, 90), nn.SiLU(), nn.Linear(90, 40)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    until = None
    for step in range(2000):
        x = torch.randn(64, 40)
        losses = (model(x) - x).pow(2).mean(1)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        time.sleep(0.02)
        if step == 260:
            until = time.monotonic() + 18
            if rank == 0:
                print("rank 0 commits each row", flush=True)
                seen.each = True
        seen.note(64 * step, losses.tolist())
        over = torch.tensor(float(until is not None and time.monotonic() > until))
        dist.all_reduce(over)
        if over:
            break
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {losses.mean().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
