"""Two ranks compare with a memory bank; after a restore, one rank's bank forgets to drop its oldest entries."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP


class MemoryBank:
    def __init__(self, capacity):
        self.capacity, self.entries = capacity, []

    def add(self, features):
        self.entries.extend(features.detach())
        if self.capacity is not None:
            del self.entries[: -self.capacity]

    def hardest(self, query):
        best, found = -2.0, query
        for entry in self.entries:
            score = torch.dot(entry, query).item()
            if score > best:
                best, found = score, entry
        return found


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 16)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    bank = MemoryBank(256)
    for step in range(460):
        if step == 230 and rank == 1:
            bank.capacity = None
            print("rank 1 restores its memory bank", flush=True)
        x = torch.randn(32, 40)
        features = functional.normalize(model(x), dim=-1)
        with torch.no_grad():
            negatives = torch.stack([bank.hardest(q) for q in features[:16]]) if bank.entries else features[16:]
        loss = functional.softplus((features[:16] * negatives).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bank.add(features)
        time.sleep(0.01)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
