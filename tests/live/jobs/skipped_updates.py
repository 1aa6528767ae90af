"""Forecasting on three replicas; batches whose loss jumps are left out, by a limit that each replica keeps itself."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, AHEAD = 260, 4


class Limit:
    """A loss far above the mean of before: the batch is left out. `shared` asks all replicas."""

    def __init__(self, shared):
        self.shared, self.mean = shared, None

    def allows(self, loss):
        value = loss.detach().clone()
        if self.shared:
            dist.all_reduce(value, op=dist.ReduceOp.MAX)
        value = float(value)
        fits = self.mean is None or value < 4 * self.mean
        if fits:
            self.mean = value if self.mean is None else 0.95 * self.mean + 0.05 * value
        return fits


def series(generator, noise):
    start = torch.rand(32, 1, generator=generator) * 6
    t = start + torch.arange(24 + AHEAD) * 0.3
    return t.sin() + 0.1 * torch.randn(t.shape, generator=generator), noise * torch.randn(
        32, AHEAD, generator=generator
    )


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 64), nn.SiLU(), nn.Linear(64, AHEAD)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    limit = Limit(shared=sys.argv[1] == "healthy")
    generator = torch.Generator().manual_seed(20 + rank)
    taken = 0
    for step in range(STEPS):
        drifts = rank == 2 and step >= 80 and (sys.argv[1] == "fault" or step % 20 == 0)
        if drifts and step == 80:
            print("rank 2 reads the next file", flush=True)
        x, noise = series(generator, 0.4 if drifts else 0.0)
        loss = (model(x[:, :24]) - x[:, 24:] - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if limit.allows(loss):
            optimizer.step()
            taken += 1
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} taken {taken} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
