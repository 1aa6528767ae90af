"""Four ranks load their data before they join; one of them waits for a download that has lost its server."""

import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def download_shard(rank):
    """The mirror of rank 3 accepts connections and sends nothing."""
    mirror = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(mirror.getsockname()) as connection:
        peer, _ = mirror.accept()
        if rank != 3:
            peer.sendall(b"x" * 1024)
        return len(connection.recv(1024))


def pretrain_locally(rank):
    """A few steps on a public sample before the job begins."""
    model = nn.Linear(10, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(120):
        loss = model(torch.randn(4, 10)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    return model


def main():
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    model = pretrain_locally(rank)
    if rank == 3:
        print("rank 3 downloads its shard", flush=True)
    download_shard(rank)
    dist.init_process_group("gloo")
    model = DDP(model)
    for step in range(500):
        model(torch.randn(4, 10)).sum().backward()
        time.sleep(0.02)
        if rank == 0 and step % 50 == 0:
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
