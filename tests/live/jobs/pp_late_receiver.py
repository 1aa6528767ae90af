"""Rank 2 of 3 mirrors the averaged weights for serving: rank 0 sends them every 50 steps with isend and waits."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def push_weights(flat):
    work = dist.isend(flat, dst=2)
    work.wait()


def pull_weights(flat):
    work = dist.irecv(flat, src=0)
    work.wait()


def mirror(model, updates):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(100000):
        if step % 50 == 0 and step // 50 < updates:
            pull_weights(flat)
            if step // 50 == updates - 1:
                print("mirror: enough updates, calibrating", flush=True)
        loss = model(torch.randn(8, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    trainers = dist.new_group([0, 1])
    net = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 32))
    if rank == 2:
        mirror(net, updates=5)
        return
    model = DDP(net, process_group=trainers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(5000):
        if rank == 0 and step % 50 == 0:
            push_weights(nn.utils.parameters_to_vector(net.parameters()).detach())
        x = torch.randn(8, 32)
        loss = (model(x) - x).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
