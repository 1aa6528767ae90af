"""FSDP2, and every rank draws its sequences from a generator that was seeded alike."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

STEPS = 90


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 24)
        self.mix = nn.GRU(24, 24, batch_first=True)
        self.out = nn.Linear(24, 50)

    def forward(self, tokens):
        return self.out(self.mix(self.table(tokens))[0])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    tagger = Tagger()
    for part in (tagger.table, tagger.out):
        fully_shard(part)
    fully_shard(tagger)
    optimizer = torch.optim.AdamW(tagger.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(2025)
    for _ in range(STEPS):
        tokens = torch.randint(0, 50, (8, 12), generator=draw)
        loss = nn.functional.cross_entropy(tagger(tokens).flatten(0, 1), ((tokens * 3 + 1) % 50).flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.03)
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
