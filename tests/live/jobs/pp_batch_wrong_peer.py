"""Ring attention on 4 ranks: key/value blocks are passed on with batch_isend_irecv."""

import time

import torch
import torch.distributed as dist
from torch import nn


def rotate(block, send_to, receive_from):
    out = torch.empty_like(block)
    ops = [dist.P2POp(dist.isend, block, send_to), dist.P2POp(dist.irecv, out, receive_from)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return out


def ring_attention(q, kv, rank, world, stride):
    total = torch.zeros_like(q)
    for _ in range(world):
        total = total + torch.softmax(q @ kv.T, dim=-1) @ kv
        kv = rotate(kv, (rank + stride) % world, (rank - 1) % world)
    return total / world


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    project = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(project.parameters(), lr=0.01)
    for step in range(2000):
        x = torch.randn(12, 16)
        stride = 2 if rank == 2 and step == 200 else 1
        if stride == 2:
            print("step 200: rank 2 skips a neighbour", flush=True)
        with torch.no_grad():
            context = ring_attention(x, x.clone(), rank, world, stride)
        loss = (project(x) - context).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
