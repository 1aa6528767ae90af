"""A pipeline of three stages over send and recv; the middle one begins to check its activations in Python."""

import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, MICRO, BATCHES = 64, 64, 4


class Stage:
    def __init__(self, rank, world):
        self.before, self.after = rank - 1, rank + 1 if rank + 1 < world else None
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.checked = 0

    def check_activations(self, out):
        for _ in range(120):
            self.checked += sum(1 for value in out.flatten().tolist() if abs(value) > 0.99)

    def forward(self, checks):
        x = torch.randn(MICRO, WIDTH)
        if self.before >= 0:
            dist.recv(x, self.before)
            x.requires_grad_()
        out = self.net(x)
        if checks:
            self.check_activations(out.detach())
        if self.after is not None:
            dist.send(out.detach(), self.after)
        return x, out

    def backward(self, x, out):
        grad = torch.ones_like(out) / out.numel()
        if self.after is not None:
            dist.recv(grad, self.after)
        out.backward(grad)
        if self.before >= 0:
            dist.send(x.grad, self.before)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    stage = Stage(rank, dist.get_world_size())
    for step in range(620):
        if step == 350 and rank == 1:
            print("rank 1 checks its activations", flush=True)
        pairs = [stage.forward(checks=rank == 1 and step >= 350) for _ in range(BATCHES)]
        for x, out in pairs:
            stage.backward(x, out)
        stage.optimizer.step()
        stage.optimizer.zero_grad()
        time.sleep(0.015)
        if rank == 0 and step % 50 == 0:
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
