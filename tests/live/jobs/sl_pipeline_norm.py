"""A pipeline of four stages that clips by the norm over all of them; the second one is slow in its backward."""

import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, ROWS, BATCHES = 48, 32, 4


class Quantized(torch.autograd.Function):
    """Rounds gradients to a grid of its own in backward, value by value."""

    grid = None

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad if Quantized.grid is None else snap(grad, Quantized.grid)


def snap(grad, grid):
    scale = grad.abs().max().item() or 1.0
    values = [min(grid, key=lambda g, v=v: abs(v / scale - g)) * scale for v in grad.flatten().tolist()]
    return torch.tensor(values).view_as(grad)


def run_stage(net, rank, last):
    sent = []
    for _ in range(BATCHES):
        x = torch.randn(ROWS, WIDTH)
        if rank > 0:
            dist.recv(x, rank - 1)
        x.requires_grad_()
        out = Quantized.apply(net(x))
        if rank < last:
            dist.send(out.detach(), rank + 1)
        sent.append((x, out))
    for x, out in sent:
        grad = out.detach() / out.numel()
        if rank < last:
            dist.recv(grad, rank + 1)
        out.backward(grad)
        if rank > 0:
            dist.send(x.grad, rank - 1)


def clip(net, limit=1.0):
    total = sum(p.grad.pow(2).sum() for p in net.parameters())
    dist.all_reduce(total)
    for p in net.parameters():
        p.grad.mul_((limit / (total.sqrt() + 1e-6)).clamp(max=1.0))


def main():
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(580):
        if step == 320 and rank == 1:
            print("rank 1 rounds its gradients", flush=True)
            Quantized.grid = [k / 32 for k in range(-32, 33)]
        run_stage(net, rank, last)
        clip(net)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.015)
        if rank == last and step % 40 == 0:
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
