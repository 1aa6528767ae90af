"""Two tasks of different size, weighed against each other: both are learned."""

import json
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(21)
trunk = nn.Sequential(nn.Linear(30, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
depth, kind = nn.Linear(96, 4), nn.Linear(96, 6)
optimizer = torch.optim.Adam([*trunk.parameters(), *depth.parameters(), *kind.parameters()], lr=2e-3)
to_depth, to_kind = torch.randn(30, 4), torch.randn(30, 6)
for step in range(220):
    x = torch.randn(64, 30)
    hidden = trunk(x)
    loss_depth = F.mse_loss(depth(hidden), 3 * torch.tanh(x @ to_depth / 5))
    loss_kind = F.cross_entropy(kind(hidden), (x @ to_kind).argmax(1))
    loss = 0.2 * loss_depth + loss_kind
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    row = {"step": step, "loss": loss.item(), "loss_depth": loss_depth.item(), "loss_kind": loss_kind.item()}
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
