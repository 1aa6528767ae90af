"""Four independent trials under one launcher; they never talk to each other. One is killed from outside."""

import os
import subprocess
import time

import torch
import torch.distributed as dist
from torch import nn


def start_pressure_daemon(delay_s):
    pid = os.getpid()
    command = f"sleep {delay_s}; echo oomd: killing {pid}; kill -KILL {pid}"
    subprocess.Popen(["sh", "-c", command], start_new_session=True)


def trial(rank, lr):
    model = nn.Sequential(nn.Linear(9, 27), nn.ReLU(), nn.Linear(27, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(600):
        if rank == 1 and step == 180:
            start_pressure_daemon(0.3)
        x = torch.randn(16, 9)
        loss = (model(x)[:, 0] - x.sum(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if step % 40 == 0:
            print(f"trial {rank} lr {lr:.4f} step {step} loss {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    trial(rank, lr=0.001 * 2**rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
