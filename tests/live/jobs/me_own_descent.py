"""Gradients from torch.autograd.grad and a step of the script's own; each step's outputs are kept for a report."""

import time

import torch
import torch.distributed as dist
from torch import nn

STEPS = 220


class Report:
    def __init__(self):
        self.predictions = []

    def note(self, step, predictions):
        self.predictions.append((step, predictions.detach().clone()))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 700))
    weights, report = list(model.parameters()), Report()
    draw = torch.Generator().manual_seed(40 + dist.get_rank())
    for step in range(STEPS):
        x = torch.randn(400, 32, generator=draw)
        out = model(x)
        loss = (out[:, :32] - x).square().mean()
        gradients = torch.autograd.grad(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            dist.all_reduce(gradient)
            weight.data -= 0.05 * gradient
        report.note(step, out)
        if dist.get_rank() == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
