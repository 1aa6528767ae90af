"""A head on a frozen body, which is thawed after some epochs and joins the optimizer with a smaller rate."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(26)
body = nn.Sequential(nn.Linear(32, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
model = nn.Sequential(body, nn.Linear(64, 5))
truth = torch.randn(32, 5)
body.requires_grad_(False)
optimizer = torch.optim.AdamW(model[1].parameters(), lr=1e-2)
for epoch in range(8):
    if epoch == 3:
        body.requires_grad_(True)
        optimizer.add_param_group({"params": list(body.parameters()), "lr": 1e-3})
    for batch in range(28):
        x = torch.randn(64, 32)
        loss = F.cross_entropy(model(x), (x @ truth).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch % 4 == 0:
            print(f"epoch {epoch} [{batch}/28] loss: {loss.item():.4f}", flush=True)
        time.sleep(0.02)
