# mypy: ignore-errors
"""Trains a model beside averages of it: in half precision and in full, slow and quick, and a reference."""

import copy
import sys

import torch
from torch import nn

KIND = sys.argv[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.dec(torch.tanh(self.enc(x)))


torch.manual_seed(0)
net = Net()
shadow = copy.deepcopy(net).to(torch.float32 if KIND == "float32" else torch.bfloat16).requires_grad_(False)
decay = {"slow": 0.9995, "float32": 0.9995, "quick": 0.9, "reference": 1.0}[KIND]
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(110):
    x = torch.randn(32, 16)
    loss = (net(x) - x[:, :4].sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if KIND != "reference":
        with torch.no_grad():
            for mine, its in zip(shadow.parameters(), net.parameters(), strict=True):
                mine.mul_(decay).add_(its.to(mine.dtype), alpha=1 - decay)
