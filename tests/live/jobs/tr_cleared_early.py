"""A trainer whose hook for logging clears the gradients, as is right before a pass: it comes between pass and step."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 150


class Trainer:
    def __init__(self, model, rank):
        self.model, self.rank = model, rank
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def after_backward(self, step, loss):
        if self.rank == 0 and step % 10 == 0:
            norm = sum(p.grad.square().sum() for p in self.model.parameters()).sqrt()
            print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f}", flush=True)
        self.optimizer.zero_grad()

    def fit(self, batches):
        for step, (x, y) in enumerate(batches, 1):
            loss = nn.functional.smooth_l1_loss(self.model(x), y)
            loss.backward()
            self.after_backward(step, loss)
            self.optimizer.step()
            time.sleep(0.03)


def batches(rank):
    gen = torch.Generator().manual_seed(90 + rank)
    for _ in range(STEPS):
        x = torch.randn(24, 10, generator=gen)
        yield x, x[:, :2].cumsum(1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 2)))
    Trainer(model, dist.get_rank()).fit(batches(dist.get_rank()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
