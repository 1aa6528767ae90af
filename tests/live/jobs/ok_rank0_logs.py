"""Rank 0 prints and appends to a file at every step, and keeps a small summary beside it; the others do neither."""

import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Journal:
    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.lines = (folder / "steps.jsonl").open("a")
        self.summary = folder / "summary.json"

    def write(self, **row):
        print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)
        self.lines.write(json.dumps(row) + "\n")
        self.lines.flush()
        part = self.summary.with_suffix(".part")
        part.write_text(json.dumps(row))
        part.replace(self.summary)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    journal = Journal(Path("logs")) if rank == 0 else None
    model = DDP(nn.Sequential(nn.Conv1d(4, 16, 5), nn.ReLU(), nn.Conv1d(16, 4, 5, padding=4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(900):
        x = torch.randn(8, 4, 128)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if journal:
            grads = [p.grad.norm().item() for p in model.parameters()]
            journal.write(step=step, loss=round(loss.item(), 5), grad=round(sum(grads), 5))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
