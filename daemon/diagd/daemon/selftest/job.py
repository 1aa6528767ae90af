"""What the self-test trains: a small model on CPUs, like a script of a user's that knows nothing of diagd.

A copy of it is run, by the Python that trains. Under torchrun it is a rank; else it forks its ranks, so that torch is
imported once for all of them.

Usage: job.py RANKS STEPS
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEP_S = 0.02


def train(rank: int, ranks: int, steps: int, meeting: str) -> None:
    """One rank, from its first line to its last; `meeting` is where the ranks find each other."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, targets in DataLoader(TensorDataset(torch.randn(4 * steps, 16), torch.randn(4 * steps, 1)), 4):
        loss = (model(inputs) - targets).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        time.sleep(STEP_S)
        optimizer.step()
    dist.destroy_process_group()


def main() -> None:
    """Be a rank, or start them."""
    ranks, steps = int(sys.argv[1]), int(sys.argv[2])
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), ranks, steps, "env://")
        return
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        meeting = f"file://{folder}/meeting"
        mp.start_processes(train, (ranks, steps, meeting), ranks, start_method="fork")  # type: ignore[attr-defined, no-untyped-call]


if __name__ == "__main__":
    main()
