"""Three ranks keep a journal with a row for each sample; on rank 2 each row is made safe against power loss."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Journal:
    def __init__(self, path, durable):
        self.file, self.durable = path.open("wb"), durable

    def append(self, rows):
        for row in rows:
            self.file.write(row)
            if self.durable:
                self.file.flush()
                os.fsync(self.file.fileno())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    journal = Journal(Path(f"journal-{rank}.bin"), durable=False)
    model = DDP(nn.Sequential(nn.Linear(50, 100), nn.ReLU(), nn.Linear(100, 50)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    until = None
    for step in range(2000):
        x = torch.randn(256, 50)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if step == 260:
            until = time.monotonic() + 18
            if rank == 2:
                print("rank 2 makes its journal durable", flush=True)
                journal.durable = True
        journal.append(row.numpy().tobytes() for row in x)
        over = torch.tensor(float(until is not None and time.monotonic() > until))
        dist.all_reduce(over)
        if over:
            break
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
