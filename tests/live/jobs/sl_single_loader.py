"""One process without ranks; the second shard of its data set is compressed far more densely."""

import lzma
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Archive(Dataset):
    def __init__(self, rows=16 * 480):
        self.rows = rows
        rng = random.Random(0)
        self.plain = bytes(rng.choices(range(48), k=64))
        self.dense = lzma.compress(bytes(rng.choices(range(48), k=160_000)), preset=1)

    def __len__(self):
        return self.rows

    def unpack(self, i):
        if i < 16 * 300:
            return self.plain
        if i == 16 * 300:
            print("shard 2 opened", flush=True)
        return lzma.decompress(self.dense)[:64]

    def __getitem__(self, i):
        return torch.tensor(list(self.unpack(i))) / 48.0, i % 3


def train(model, optimizer, loader):
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.025)
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    train(model, torch.optim.Adam(model.parameters()), DataLoader(Archive(), batch_size=16, num_workers=1))


if __name__ == "__main__":
    main()
