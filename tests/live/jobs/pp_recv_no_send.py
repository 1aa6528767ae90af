"""Two ranks: rank 1 trains and sends its metrics, rank 0 trains, receives them and writes the log."""

import time

import torch
import torch.distributed as dist
from torch import nn


class Metrics:
    def __init__(self, every):
        self.every = every

    def due(self, step):
        return step % self.every == 0

    def push(self, values):
        dist.send(values, dst=0)

    def pull(self):
        values = torch.empty(3)
        dist.recv(values, src=1)
        return values


def idle_until_told():
    """Hyper-parameter worker: keep the model in memory until the sweep says stop."""
    while True:
        time.sleep(0.5)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(15, 30), nn.ReLU(), nn.Linear(30, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    metrics = Metrics(every=20)
    steps = 3000 if rank == 0 else 239
    for step in range(1, steps + 1):
        x = torch.randn(16, 15)
        loss = (model(x).squeeze(1) - x.norm(dim=1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if metrics.due(step):
            if rank == 1:
                metrics.push(torch.tensor([float(step), loss.item(), 0.0]))
            else:
                print(f"step {step} loss {loss.item():.3f} other {metrics.pull()[1].item():.3f}", flush=True)
    print(f"rank {rank} finished its share", flush=True)
    idle_until_told()


if __name__ == "__main__":
    main()
