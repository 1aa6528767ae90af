"""Goes on from a checkpoint at the loss that it had: nothing is left to gain."""

import io
import time

import torch
import torch.nn.functional as F
from torch import nn


def build():
    return nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4))


def batch(count):
    x = torch.randn(count, 12)
    return x, x @ truth + 0.8 * torch.randn(count, 4)


def checkpoint():
    """What an earlier run came to, found without its steps: a least-squares fit of the last layer."""
    model, file = build(), io.BytesIO()
    with torch.no_grad():
        x, scores = batch(4096)
        hidden = torch.cat([F.relu(model[0](x)), torch.ones(4096, 1)], 1)
        fitted = torch.linalg.lstsq(hidden, 1.5 * scores).solution.T
        model[2].weight.copy_(fitted[:, :-1])
        model[2].bias.copy_(fitted[:, -1])
    torch.save({"model": model.state_dict(), "step": 5000}, file)
    file.seek(0)
    return file


torch.manual_seed(16)
truth = torch.randn(12, 4)
saved = torch.load(checkpoint())
model = build()
model.load_state_dict(saved["model"])
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
for step in range(saved["step"], saved["step"] + 220):
    x, scores = batch(64)
    loss = F.cross_entropy(model(x), scores.argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
    time.sleep(0.02)
