"""Gossip SGD on a ring of 3: parameters go to the right, come from the left; one rank has an old topology."""

import time

import torch
import torch.distributed as dist
from torch import nn


def neighbours(rank, world, reverse):
    right, left = (rank + 1) % world, (rank - 1) % world
    return (left, right) if reverse else (right, left)


def gossip(model, to, source):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    incoming = torch.empty_like(flat)
    pending = [dist.isend(flat, to), dist.irecv(incoming, source)]
    for work in pending:
        work.wait()
    nn.utils.vector_to_parameters((flat + incoming) / 2, model.parameters())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(50, 100), nn.ReLU(), nn.Linear(100, 50))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2500):
        x = torch.randn(8, 50)
        loss = (model(x) - x.roll(3, 1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # the ring turns round at step 240; rank 1 did not get the new plan
        reverse = step >= 240 and rank != 1
        if rank == 0 and step == 240:
            print("step 240: ring turns round", flush=True)
        gossip(model, *neighbours(rank, world, reverse))
        time.sleep(0.012)
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
