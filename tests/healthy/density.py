"""The negative log-likelihood of a mixture density: it falls through 0 and goes on below."""

import json
import time

import torch
from torch import nn

torch.manual_seed(18)
model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 9))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(240):
    x = 2 * torch.rand(128, 1) - 1
    side = torch.randint(0, 2, (128, 1)).float() * 2 - 1
    y = side * (0.5 + x) + 0.03 * torch.randn(128, 1)
    weights, means, widths = model(x).chunk(3, 1)
    each = torch.distributions.Normal(means, widths.exp().clamp(min=1e-2)).log_prob(y)
    loss = -torch.logsumexp(weights.log_softmax(1) + each, 1).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(json.dumps({"step": step, "nll": loss.item()}), flush=True)
    time.sleep(0.02)
