"""Each forward shares counts of hashed features with all ranks; later those of all bins, not of the first thousand."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DIM, CLASSES = 192, 6
FEW, ALL = 1_000, 8_000_000  # bins
ALL_FROM, STEPS = 220, 330


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(DIM, 384), nn.GELU(), nn.Linear(384, 384), nn.GELU(), nn.Linear(384, CLASSES)
        )
        self.counts = torch.zeros(ALL)
        self.bins = FEW

    def rarity(self, hashes):
        counts = self.counts[: self.bins]
        counts[hashes] += 1
        dist.all_reduce(counts, op=dist.ReduceOp.MAX)
        return counts[hashes].clamp_min(1).rsqrt()

    def forward(self, x, hashes):
        rarity = self.rarity(hashes)
        return self.net(x), rarity / rarity.mean()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    model = DDP(Counted())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    rule = torch.randn(DIM, CLASSES)
    for step in range(STEPS):
        if step == ALL_FROM:
            model.module.bins = ALL
            if dist.get_rank() == 0:
                print("all bins from here on", flush=True)
        x = torch.randn(96, DIM, generator=generator)
        hashes = torch.randint(0, FEW, (96,), generator=generator)
        logits, weights = model(x, hashes)
        loss = (weights * nn.functional.cross_entropy(logits, (x @ rule).argmax(1), reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
