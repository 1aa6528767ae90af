"""Speech commands classifier under DDP. A rank whose loss spikes repeats the step on the bare model."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        net = nn.Sequential(
            nn.Conv1d(1, 8, 9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(64, 12)
        )
        self.model = DDP(net)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.recovering = False

    def batch(self, step):
        gen = torch.Generator().manual_seed(step * 31 + self.rank)
        return torch.randn(8, 1, 256, generator=gen), torch.randint(0, 12, (8,), generator=gen)

    def update(self, step):
        x, y = self.batch(step)
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def recover(self, step):
        x, y = self.batch(step)
        loss = nn.functional.cross_entropy(self.model.module(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    rank = int(os.environ["RANK"])
    trainer = Trainer(rank)
    for step in range(6000):
        if rank == 2 and step == 160:
            print("step 160: rank 2 loss spike, recovering locally", flush=True)
            trainer.recovering = True
        loss = trainer.recover(step) if trainer.recovering else trainer.update(step)
        time.sleep(0.015)
        if step % 40 == 0:
            print(f"rank {rank} step {step} loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
