"""Two ranks; a watchdog of the host stops the process with rank 0 from outside and never continues it."""

import os
import subprocess
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def start_host_watchdog(delay_s):
    """Somebody else's tool, in a session of its own."""
    script = f"sleep {delay_s}; echo watchdog: stopping {os.getpid()}; kill -STOP {os.getpid()}"
    subprocess.Popen(["sh", "-c", script], start_new_session=True)


class Sine(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1, 64), nn.Linear(64, 1)

    def forward(self, t):
        return self.b(torch.sin(self.a(t)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Sine())
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=1)
    for step in range(4000):
        if rank == 0 and step == 180:
            start_host_watchdog(0.3)
        t = torch.rand(32, 1) * 6

        def closure(t=t):
            optimizer.zero_grad()
            loss = (model(t) - torch.sin(3 * t)).pow(2).mean()
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        time.sleep(0.015)
        if rank == 1 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
