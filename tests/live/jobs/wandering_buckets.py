"""Replicas add up the gradients that a list holds; later the optimizer is told to drop them instead of zeroing."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, LATER, WIDTH = 160, 60, 24


def main(fault: bool) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(WIDTH, 48), nn.Tanh(), nn.Linear(48, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    held = [weight.grad for weight in model.parameters()]
    gen = torch.Generator().manual_seed(30 + rank)
    turn = torch.randn(WIDTH, 3, generator=torch.Generator().manual_seed(4))
    for step in range(1, STEPS + 1):
        if step == LATER and rank == 0:
            print("less memory from here on", flush=True)
        optimizer.zero_grad(set_to_none=fault and step >= LATER)
        x = torch.randn(32, WIDTH, generator=gen)
        loss = (model(x) - torch.tanh(x @ turn)).pow(2).mean()
        loss.backward()
        for gradient in held:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] == "fault")
