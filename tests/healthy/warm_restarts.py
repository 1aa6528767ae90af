"""A cosine with warm restarts: at each of them the rate jumps and the loss rises with it."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(12)
model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 60)
truth = torch.randn(20, 5)
for step in range(240):
    x = torch.randn(64, 20)
    loss = F.cross_entropy(model(x), (x @ truth).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"[{step}] loss: {loss.item():.4f}, lr: {schedule.get_last_lr()[0]:.4g}", flush=True)
    time.sleep(0.02)
