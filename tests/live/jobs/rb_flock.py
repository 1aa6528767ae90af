"""Both ranks append to one results file under flock; another program on the machine takes the lock and keeps it."""

import fcntl
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# Stands for a backup job of somebody else: holds the lock for as long as the job lives.
BACKUP = """
import fcntl, os, sys, time
f = open("results.csv", "a"); fcntl.flock(f, fcntl.LOCK_EX); print("locked", flush=True)
parent = os.getppid()
while os.getppid() == parent: time.sleep(0.5)
"""


def append_result(line):
    with Path("results.csv").open("a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.write(line + "\n")


def start_backup():
    backup = subprocess.Popen([sys.executable, "-S", "-c", BACKUP], stdout=subprocess.PIPE)
    backup.stdout.readline()
    return backup


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, 3000):
        x = torch.randn(16, 12)
        loss = nn.functional.cross_entropy(model(x), (x[:, 1] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if step % 25 == 0 and rank == 1:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
            if step == 225:
                backup = start_backup()
                print(f"backup runs with pid {backup.pid}", flush=True)
            append_result(f"{step},{loss.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
