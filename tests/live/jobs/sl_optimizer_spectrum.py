"""Three ranks with an optimizer of their own that looks at the weights' spectrum, on one rank far too often."""

import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class WatchedSGD(torch.optim.Optimizer):
    def __init__(self, params, lr, every):
        super().__init__(params, {"lr": lr})
        self.every, self.count, self.condition = every, 0, 0.0

    def watch_spectrum(self, weight):
        values = torch.linalg.svdvals(weight.double())
        self.condition = (values[0] / values[-1]).item()

    @torch.no_grad()
    def step(self):
        self.count += 1
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])
                if p.dim() == 2 and self.count % self.every == 0:
                    self.watch_spectrum(p)


def reload(optimizer, rank):
    """Settings may be changed while the job runs; one node still has last week's file."""
    settings = Path(f"settings-{rank}.json")
    settings.write_text(json.dumps({"every": 1 if rank == 2 else 400}))
    optimizer.every = json.loads(settings.read_text())["every"]
    print(f"rank {rank} reloads its settings: spectrum every {optimizer.every}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(64, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 8)))
    torch.manual_seed(100 + rank)
    optimizer = WatchedSGD(model.parameters(), lr=0.01, every=400)
    for step in range(420):
        x = torch.randn(24, 64)
        loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if step == 260:
            reload(optimizer, rank)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
