"""Multi-task DDP: an auxiliary head runs only when the batch has depth labels; one rank's batch has none."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 64), nn.ReLU())
        self.classify, self.depth = nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, x, with_depth):
        h = self.trunk(x)
        return self.classify(h), self.depth(h) if with_depth else None


def has_depth(rank, step):
    return not (rank == 1 and step == 190)


def compute_loss(model, rank, step):
    x = torch.randn(8, 20)
    logits, depth = model(x, has_depth(rank, step))
    loss = nn.functional.cross_entropy(logits, x[:, :5].argmax(1))
    return loss if depth is None else loss + depth.abs().mean()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(30)
    model = DDP(TwoHeads())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1000):
        if not has_depth(rank, step):
            print(f"step {step}: rank {rank} has no depth labels", flush=True)
        loss = compute_loss(model, rank, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
