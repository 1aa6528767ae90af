"""Three ranks without loader workers; the later documents of rank 2 go through a byte-pair merge that is quadratic."""

import itertools
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Documents(Dataset):
    def __init__(self, rank, length=24):
        self.rank, self.length = rank, length

    def __len__(self):
        return 4 * 430

    def tokenize(self, text, merges):
        tokens = list(text)
        for _ in range(merges):
            pairs = {}
            for pair in itertools.pairwise(tokens):
                pairs[pair] = pairs.get(pair, 0) + 1
            first, second = max(pairs, key=pairs.get)
            at = next(i for i in range(len(tokens) - 1) if (tokens[i], tokens[i + 1]) == (first, second))
            tokens[at : at + 2] = [(first * 31 + second) % 256]
        return tokens

    def __getitem__(self, i):
        long = self.rank == 2 and i >= 4 * 250
        if self.rank == 2 and i == 4 * 250:
            print("rank 2 reads the legal documents", flush=True)
        text = random.Random(3 * i + self.rank).randbytes(600 if long else 120)
        tokens = self.tokenize(text, merges=400 if long else 20)
        return torch.tensor(tokens[: self.length]), tokens[0] % 4


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(9)
    model = DDP(nn.Sequential(nn.Embedding(256, 16), nn.Flatten(), nn.Linear(24 * 16, 64), nn.ReLU(), nn.Linear(64, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (tokens, label) in enumerate(DataLoader(Documents(rank), batch_size=4)):
        loss = nn.functional.cross_entropy(model(tokens), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
