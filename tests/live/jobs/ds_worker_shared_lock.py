"""Two ranks; workers share one decoder licence (a lock). A worker that recycles itself does not give it back."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Licensed(Dataset):
    def __init__(self, licence, rank):
        self.licence, self.rank = licence, rank

    def __len__(self):
        return 1200

    def decode(self, i):
        self.licence.acquire()
        if self.rank == 0 and i == 1000:
            print("decoder: sample 1000 needs the fallback codec", flush=True)
            return self.decode_fallback(i)
        value = torch.randn(14, generator=torch.Generator().manual_seed(i))
        self.licence.release()
        return value

    def decode_fallback(self, i):
        with self.licence:
            return torch.zeros(14)

    def __getitem__(self, i):
        return self.decode(i), i % 2


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(23)
    data = Licensed(mp.get_context("fork").Lock(), rank)
    loader = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)
    model = DDP(nn.Sequential(nn.Linear(14, 42), nn.ReLU(), nn.Linear(42, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(10):
        for step, (x, label) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.014)
            if rank == 0 and step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
