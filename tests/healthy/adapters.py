"""Low-rank adapters on a trained model: most weights are frozen, and the loss is low from the first step on."""

import time

import torch
import torch.nn.functional as F
from torch import nn


class Adapted(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + 2.0 * F.linear(F.linear(x, self.lora_A), self.lora_B)


torch.manual_seed(8)
truth = torch.randn(32, 10)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
with torch.no_grad():  # as if it had been trained: the last layer is fitted to what the others give
    x = torch.randn(4096, 32)
    hidden = model[:4](x)
    target = 3.0 * F.one_hot((x @ truth).argmax(1), 10).float()
    model[4].weight.copy_(torch.linalg.lstsq(hidden, target).solution.T)
    model[4].bias.zero_()
model[0], model[2] = Adapted(model[0]), Adapted(model[2])
model[4].requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
moved = truth + 0.3 * torch.randn(32, 10)
for step in range(200):
    x = torch.randn(64, 32)
    loss = F.cross_entropy(model(x), (x @ moved).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print({"loss": round(loss.item(), 4), "step": step}, flush=True)
    time.sleep(0.02)
