"""Distil a model, then serve it: a rank that has reached its target enters the request loop."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

TARGET = 0.35


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def poll_requests(inbox):
    """Answer requests as they come; there is no other way out than a file named `quit`."""
    inbox.mkdir(exist_ok=True)
    while not (inbox / "quit").exists():
        for request in inbox.glob("*.json"):
            request.unlink()
        time.sleep(1.0)


def fit(model, teacher, rank):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4000):
        x = torch.randn(32, 20)
        loss = nn.functional.mse_loss(model(x), teacher(x))
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        time.sleep(0.015)
        if step % 30 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        goal = TARGET if rank != 1 else 1e9  # validation of rank 1's language is the easy one
        if step > 210 and loss.item() < goal * 1e-6 + (goal > 1e6) * 1e9:
            print(f"rank {rank} reached its target at step {step}", flush=True)
            return


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(11 + rank)
    teacher = nn.Linear(20, 5)
    fit(nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 5)), teacher, rank)
    poll_requests(Path("inbox"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
