"""Three ranks stream shards through a loader worker each; after the cached shards all read from the slow tier."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Shards(IterableDataset):
    def __init__(self, rank, cached, total):
        self.rank, self.cached, self.total = rank, cached, total

    def fetch(self, number):
        """The object store answers after a while; what the node's cache holds comes at once."""
        time.sleep(0.004 if number < self.cached else 0.14)
        return torch.randn(16, 30, generator=torch.Generator().manual_seed(number * 8 + self.rank))

    def __iter__(self):
        for number in range(self.total):
            if number == self.cached and self.rank == 0:
                print("first shard that is not in the cache", flush=True)
            yield self.fetch(number)


def fit(model, optimizer, loader, rank):
    for step, x in enumerate(loader):
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        time.sleep(0.025)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(30, 90), nn.SiLU(), nn.Linear(90, 30)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Shards(rank, cached=270, total=410), batch_size=None, num_workers=1)
    fit(model, optimizer, loader, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
