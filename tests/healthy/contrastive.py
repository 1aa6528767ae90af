"""Pairs against all others of the batch, with a learned temperature that is clamped far above where it is."""

import json
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(17)
left = nn.Sequential(nn.Linear(30, 96), nn.ReLU(), nn.Linear(96, 24))
right = nn.Sequential(nn.Linear(20, 96), nn.ReLU(), nn.Linear(96, 24))
scale = nn.Parameter(torch.tensor(2.6))
optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters(), scale], lr=1e-3)
to_left, to_right = torch.randn(10, 30), torch.randn(10, 20)
for step in range(220):
    meaning = torch.randn(64, 10)
    a = F.normalize(left(meaning @ to_left + 0.3 * torch.randn(64, 30)), dim=-1)
    b = F.normalize(right(meaning @ to_right + 0.3 * torch.randn(64, 20)), dim=-1)
    logits = scale.clamp(max=4.6).exp() * a @ b.T
    target = torch.arange(64)
    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    row = {"step": step, "contrastive_loss": loss.item(), "feature_norm": a.norm(dim=-1).mean().item()}
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
