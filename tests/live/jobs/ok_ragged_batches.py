"""Sequences of random length, another one on each rank and at each step: sometimes one is late, sometimes the other."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tagger(nn.Module):
    def __init__(self, vocab=500, dim=48, tags=7):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, tags)

    def forward(self, tokens):
        return self.out(self.gru(self.embed(tokens))[0])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    lengths = random.Random(100 + rank)
    model = DDP(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1100):
        tokens = torch.randint(0, 500, (32, int(lengths.lognormvariate(4.0, 0.8)) % 400 + 4))
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), (tokens % 7).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} length {tokens.shape[1]} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
