"""Noise prediction at random times: a noisy loss that falls quickly and stays near its floor; an average of weights."""

import copy
import time

import torch
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(3, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(240):
    angle = 6.283 * torch.rand(64, 1)
    data = torch.cat([angle.cos(), angle.sin()], 1) * (0.5 + torch.rand(64, 1).round())
    time_ = torch.rand(64, 1)
    noise = torch.randn_like(data)
    noisy = (1 - time_).sqrt() * data + time_.sqrt() * noise
    loss = ((model(torch.cat([noisy, time_], 1)) - noise) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.lerp_(fast, 0.01)
    print(f"{step}: mse={loss.item():.5f}", flush=True)
    time.sleep(0.02)
