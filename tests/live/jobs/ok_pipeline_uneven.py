"""A pipeline whose last stage has always had more to do than the others: nothing has changed, and nothing is wrong."""

import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, BATCHES = 96, 4


def stage_of(rank):
    depth = 8 if rank == 2 else 2
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(depth)])


def forward(net, rank, last):
    x = torch.randn(32, WIDTH)
    if rank > 0:
        dist.recv(x, rank - 1)
        x.requires_grad_()
    out = net(x)
    if rank < last:
        dist.send(out.detach(), rank + 1)
    return x, out


def backward(rank, last, x, out):
    grad = torch.ones_like(out) / out.numel()
    if rank < last:
        dist.recv(grad, rank + 1)
    out.backward(grad)
    if rank > 0:
        dist.send(x.grad, rank - 1)


def main():
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    torch.manual_seed(rank)
    net = stage_of(rank)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(650):
        for x, out in [forward(net, rank, last) for _ in range(BATCHES)]:
            backward(rank, last, x, out)
        total = nn.utils.clip_grad_norm_(net.parameters(), 1.0) ** 2
        dist.all_reduce(total)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.015)
        if rank == last and step % 50 == 0:
            print(f"step {step} gradient norm {total.sqrt().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
