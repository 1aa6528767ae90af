"""Two stages of a pipeline share a projection: it is sent once at the start, then each stage trains its own."""

import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, ROWS, WIDTH, CODES = 140, 24, 28, 36


class Part(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first = first
        self.codes = nn.Linear(WIDTH, CODES, bias=False)
        self.mix = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        if self.first:
            return self.mix(x @ self.codes.weight)
        return self.codes(self.mix(x))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(60 + rank)
    part = Part(rank == 0)
    if rank == 0:
        dist.send(part.codes.weight.detach(), 1)
    else:
        dist.recv(part.codes.weight.data, 0)
    optimizer = torch.optim.Adam(part.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(4)
    for step in range(STEPS):
        wanted = torch.randint(0, CODES, (ROWS,), generator=gen)
        optimizer.zero_grad()
        if rank == 0:
            out = part(nn.functional.one_hot(wanted, CODES).float())
            dist.send(out.detach(), 1)
            grad = torch.empty_like(out)
            dist.recv(grad, 1)
            out.backward(grad)
        else:
            inner = torch.empty(ROWS, WIDTH)
            dist.recv(inner, 0)
            inner.requires_grad_()
            loss = nn.functional.cross_entropy(part(inner), wanted)
            loss.backward()
            dist.send(inner.grad, 0)
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        optimizer.step()
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
