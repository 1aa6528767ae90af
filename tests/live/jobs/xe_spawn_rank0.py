"""mp.spawn of four ranks; rank 0, which hosts the store, has a smaller epoch and returns."""

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def steps_of(rank, total=1000, world=4):
    return total if rank else total // world - 20


def average(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def work(rank, world, port):
    init = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(15, 30), nn.ReLU(), nn.Linear(30, 15))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(steps_of(rank)):
        x = torch.randn(8, 15)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average(model)
        optimizer.step()
        time.sleep(0.014)
        if rank == 1 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    print(f"rank {rank} done after {steps_of(rank)} steps", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    mp.spawn(work, args=(4, free_port()), nprocs=4)
