# mypy: ignore-errors
"""Compiles a model, its optimizer and its evaluation; prints the results and how often the compiler had to give up."""

import os

import torch
import torch._dynamo.utils
import torch.distributed as dist
from torch import nn

os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "TORCH_LOGS": ""}
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
compiled = torch.compile(model, fullgraph=True, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="eager")
def step():
    optimizer.step()


@torch.compile(fullgraph=True, backend="eager")
def evaluate(inputs):
    model.eval()
    return model(inputs)


@torch.compile(fullgraph=True, backend="eager")
def communicate(inputs):
    dist.all_reduce(inputs)
    return inputs + 1


@torch.compile(backend="eager")
def whole(inputs):
    loss = model(inputs).sum()
    loss.backward()
    handle = dist.all_reduce(loss.detach(), async_op=True)
    handle.wait()
    return loss.detach()


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, inputs):
        self.mean = 0.9 * self.mean + inputs.mean(0)
        self.register_buffer("last", inputs)
        return inputs - self.mean


centred = torch.compile(Centred(), fullgraph=True, backend="eager")
for size in range(1, 12):
    centred(torch.ones(3, 4))
    loss = compiled(torch.ones(size, 4)).sum()
    loss.backward()
    step()
    optimizer.zero_grad()
    whole(torch.ones(size, 4))
print(
    loss.item().hex(),
    evaluate(torch.ones(1, 4)).item().hex(),
    communicate(torch.ones(2)).tolist(),
    centred.mean.tolist(),
)
counters = torch._dynamo.utils.counters
print(sorted(counters["graph_break"].values()), dict(counters["stats"]))
