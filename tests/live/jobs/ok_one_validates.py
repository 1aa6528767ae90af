"""The ranks take turns: one validates while the others go on in a group without it, then it takes their weights."""

import time

import torch
import torch.distributed as dist
from torch import nn


def train(model, optimizer, draw, group, members):
    x = torch.randn(32, 10, generator=draw)
    loss = (model(x).squeeze(1) - x[:, :3].sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    gradient = torch.cat([p.grad.view(-1) for p in model.parameters()])
    dist.all_reduce(gradient, group=group)
    for p in model.parameters():
        p.grad.copy_(gradient[: p.numel()].view_as(p) / members)
        gradient = gradient[p.numel() :]
    optimizer.step()
    time.sleep(0.03)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    draw = torch.Generator().manual_seed(60 + rank)
    groups = [dist.new_group([other for other in range(world) if other != out]) for out in range(world)]
    for turn in range(5):
        for _ in range(40):
            train(model, optimizer, draw, None, world)
        out = turn % world
        if rank == out:
            with torch.no_grad():
                error = model(torch.randn(500, 10, generator=draw)).var().item()
            time.sleep(0.6)
            print(f"turn {turn}: {error:.3f}", flush=True)
        else:
            for _ in range(20):
                train(model, optimizer, draw, groups[out], world - 1)
        for parameter in model.parameters():
            dist.broadcast(parameter.data, (out + 1) % world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
