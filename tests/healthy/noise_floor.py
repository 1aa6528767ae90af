"""A regression that comes to the noise of its targets in some tens of steps, and stays there to the end."""

import time

import torch
from torch import nn

torch.manual_seed(15)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 300)
truth = torch.randn(10)
for step in range(300):
    x = torch.randn(64, 10)
    y = x @ truth + 1.5 * torch.randn(64)
    loss = ((model(x)[:, 0] - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"step={step} loss={loss.item():.4f}", flush=True)
    time.sleep(0.02)
