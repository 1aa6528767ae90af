# mypy: ignore-errors
"""Descends by gradients from torch.autograd.grad, without an optimizer of torch's, and keeps an average's graph."""

import json
import os
import time

os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")

import torch
import torch.distributed as dist

from diagd.probes import memory, suspicion
from diagd.probes.budget import BUDGET

STEPS, HOLDERS = 60, []


class Told:
    """Takes the facts in place of the signals."""

    @staticmethod
    def fact(name, text, step=None):
        if name == suspicion.HOLDER and text:
            HOLDERS.append(json.loads(text))


suspicion.SIGNALS = Told()
memory.EVERY_NS = 0  # steps this short would not all be read
BUDGET.affords = lambda ns: True


class Descent:
    """Second-order: the average is of gradients of gradients, and is never detached."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.average = [torch.zeros_like(p) for p in self.parameters]

    def step(self, loss):
        gradients = torch.autograd.grad(loss, self.parameters, create_graph=True)
        curves = torch.autograd.grad(
            gradients, self.parameters, [torch.ones_like(p) for p in gradients], create_graph=True
        )
        self.average = [0.9 * old + 0.1 * new.abs() for old, new in zip(self.average, curves, strict=True)]
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter -= 0.01 * gradient


def main():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Tanh(), torch.nn.Linear(300, 300))
    own = Descent(model.parameters())
    for _ in range(STEPS):
        x = torch.randn(8, 300)
        (penalty,) = torch.autograd.grad(model(x.requires_grad_()).sum(), [x])  # by what is no parameter: no step
        own.step((model(x) - penalty).square().mean())
        time.sleep(0.002)
    time.sleep(1.0)  # what was found is told by another thread
    print(json.dumps({"holders": [(one["path"], one["kind"], one["graph"]) for one in HOLDERS]}))


main()
