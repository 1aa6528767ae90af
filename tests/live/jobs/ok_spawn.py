"""`python` spawns two ranks with torch.multiprocessing, waits for them and prints a summary."""

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank, world, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(250):
        x = torch.randn(8, 10)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    results.put((rank, loss.item()))
    dist.destroy_process_group()


def main():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(train, args=(2, port, results), nprocs=2)
    print("results", sorted(results.get() for _ in range(2)), flush=True)


if __name__ == "__main__":
    main()
