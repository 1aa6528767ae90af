"""A correct three-stage pipeline with send and recv; the slow middle stage keeps the others waiting a little."""

import time

import torch
import torch.distributed as dist
from torch import nn

ROWS, DIM = 8, 16


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(300):
        x = torch.randn(ROWS, DIM)
        if rank:
            dist.recv(x, src=rank - 1)
            x.requires_grad_()
        if rank == 1:
            time.sleep(5 if step == 150 else 0.01)
        y = net(x)
        if rank == world - 1:
            loss = y.square().mean()
            loss.backward()
            if step % 30 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        else:
            dist.send(y.detach(), dst=rank + 1)
            grad = torch.empty_like(y)
            dist.recv(grad, src=rank + 1)
            y.backward(grad)
        if rank:
            dist.send(x.grad, dst=rank - 1)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
