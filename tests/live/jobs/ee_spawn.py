"""A plain `python` script that spawns its three ranks itself; one divides by an empty count."""

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def accuracy(logits, labels, mask):
    hits = (logits.argmax(1) == labels)[mask].sum().item()
    return hits / mask.sum().item()


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1500):
        x = torch.randn(8, 10)
        y = x[:, :4].argmax(1)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if step % 40 == 0:
            empty = rank == 1 and step == 200
            if empty:
                print("step 200: every label of rank 1 is masked", flush=True)
            score = accuracy(logits, y, torch.full((8,), not empty))
            if rank == 0:
                print(f"step {step} accuracy {score:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(3, free_port()), nprocs=3)
