"""Two ranks with one loader worker each; the later pictures of rank 0's shard take far longer to decode."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

SIDE = 24


class Pictures(Dataset):
    """Run-length encoded: pairs of a count and a value."""

    def __init__(self, rank, size=8 * 430):
        self.rank, self.size = rank, size

    def __len__(self):
        return self.size

    def read(self, i):
        detailed = self.rank == 0 and i >= 8 * 250
        if self.rank == 0 and i == 8 * 250:
            print("rank 0 shard 2: scans at full resolution", flush=True)
        return [(1 + (i + k) % 3, ((2 * i + self.rank) * k) % 251) for k in range(60_000 if detailed else SIDE * SIDE)]

    def decode(self, runs):
        pixels = []
        for count, value in runs:
            pixels.extend([value / 251.0] * count)
        return torch.tensor(pixels[:: len(pixels) // (SIDE * SIDE)][: SIDE * SIDE])

    def __getitem__(self, i):
        return self.decode(self.read(i)), i % 5


def train_epoch(model, optimizer, loader, rank):
    for step, (picture, label) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(picture), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.025)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = DDP(nn.Sequential(nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    train_epoch(model, optimizer, DataLoader(Pictures(rank), batch_size=8, num_workers=1), rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
