"""Harder data from the middle on: the loss steps up, the gradients grow, and both come down again."""

import json
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(13)
model = nn.Sequential(nn.Linear(24, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
easy, hard = torch.randn(24, 8), torch.randn(24, 8)
for step in range(240):
    x = torch.randn(64, 24)
    if step < 120:
        labels = (x @ easy).argmax(1)
    else:
        labels = torch.where(x[:, 0] > 0, (x @ hard).argmax(1), (x @ easy).argmax(1))
    loss = F.cross_entropy(model(x), labels)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    print(json.dumps({"step": step, "loss": loss.item(), "grad_norm": norm.item(), "stage": step // 120}), flush=True)
    time.sleep(0.02)
