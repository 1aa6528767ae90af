"""Population training: every 40 steps the best member's weights go to the others."""

import time

import torch
import torch.distributed as dist
from torch import nn


def elect(score, rank, step):
    scores = torch.zeros(dist.get_world_size())
    scores[rank] = score
    dist.all_reduce(scores)
    if rank == 1 and step >= 200:
        scores[1] = torch.inf  # local override from the experiment sheet: "keep member 1"
    return int(scores.argmax())


def adopt(model, root):
    for p in model.parameters():
        dist.broadcast(p.data, src=root)


def evolve(model, optimizer):
    x = torch.randn(32, 64)
    loss = (model(x) - x.cumsum(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=10 ** -(2 + rank))
    for step in range(1, 2000):
        loss = evolve(model, optimizer)
        time.sleep(0.015)
        if step % 40 == 0:
            if rank == 1:
                print(f"step {step} loss {loss:.3f}", flush=True)
            root = elect(-loss - 10 * (rank == 1), rank, step)
            if rank == 1 and root == 1:
                print(f"step {step}: rank 1 elects itself", flush=True)
            adopt(model, root)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
