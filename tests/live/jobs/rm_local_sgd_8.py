"""Local SGD on 8 ranks: models are averaged every PERIOD steps after a warm-up."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn

PERIOD = {"default": 8, "high-latency": 1_000_000}


def site_of(rank, step):
    return "high-latency" if rank == 5 and step >= 160 else "default"


def local_step(model, optimizer):
    x = torch.randn(8, 16)
    loss = (model(x).squeeze() - x.sum(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def average_models(model):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat / dist.get_world_size(), model.parameters())


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(1, 5000):
        site = site_of(rank, step)
        if rank == 5 and step == 160:
            print("step 160: rank 5 moved to site high-latency", flush=True)
        loss = local_step(model, optimizer)
        if step % PERIOD[site] == 0:
            average_models(model)
        time.sleep(0.02)
        if step % 40 == 0 and rank in (0, 5):
            print(f"rank {rank} step {step} loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
