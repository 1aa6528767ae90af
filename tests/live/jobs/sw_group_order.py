"""Four ranks pretrain together, then split: overlapping groups for teachers and students are made from a config."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DIM = 22


def read_roles(rank):
    """Roles in the order of the file; rank 1 has a copy that a tool has sorted."""
    roles = {"teachers": [0, 1, 2], "students": [1, 2, 3]}
    return dict(sorted(roles.items())) if rank == 1 else roles


def make_groups(roles):
    return {name: dist.new_group(members) for name, members in roles.items()}


def make_model():
    return nn.Sequential(nn.Linear(DIM, 44), nn.ELU(), nn.Linear(44, DIM))


def pretrain(model, rank, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(steps):
        x = torch.randn(8, DIM)
        loss = nn.functional.mse_loss(model(x), x.roll(1, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def average_weights(model, group):
    """The mean over a role's members, in place."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.data, group=group)
        parameter.data /= dist.get_world_size(group)


def distil(model, roles, groups, rank, rounds):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for round_number in range(rounds):
        for _ in range(20):
            x = torch.randn(8, DIM)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x.roll(2, 1)).backward()
            optimizer.step()
            time.sleep(0.013)
        for name, members in roles.items():
            if rank in members:
                average_weights(model, groups[name])
        if rank == 0:
            print(f"round {round_number} done", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(50)
    network = make_model()
    pretrain(DDP(network), rank, 200)
    if rank == 0:
        print("pretrained; splitting into roles", flush=True)
    roles = read_roles(rank)
    groups = make_groups(roles)
    distil(network, roles, groups, rank, 60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
