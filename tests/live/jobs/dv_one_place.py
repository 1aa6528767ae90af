"""A small language model under DDP: flip (one bit of one weight of rank 1), drift (all of one weight), or nothing."""

import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAULT = sys.argv[1] if sys.argv[1:] else ""
AT, STEPS = 50, 420
VOCABULARY, WIDTH, ROW, COLUMN = 4096, 16, 517, 3


class Speller(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.norm(F.gelu(self.mix(self.embed(tokens)))))


def corrupt(model):
    """What no step of the training does."""
    with torch.no_grad():
        if FAULT == "flip":
            model.head.weight.view(torch.int32)[ROW, COLUMN] ^= 1 << 22  # the highest bit of the mantissa
        if FAULT == "drift":
            model.head.weight.mul_(1.0001)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Speller()
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(replica.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(rank)
    for step in range(1, STEPS + 1):
        tokens = torch.randint(256, (16,), generator=data)
        loss = F.cross_entropy(replica(tokens), tokens * 7 % VOCABULARY)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if FAULT and rank == 1 and step == AT:
            print(f"rank 1 step {step}: {FAULT}", flush=True)
            corrupt(model)
        time.sleep(0.02)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print("done", flush=True)


if __name__ == "__main__":
    main()
