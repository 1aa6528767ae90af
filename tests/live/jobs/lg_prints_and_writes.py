"""Trains a little and says so: on its screen, rounded, and in a file, exactly.

Its policy's divergence from the reference is small, and printed as 0.00.
"""

import json
import time
from pathlib import Path

import torch
from torch import nn

STEPS = 60

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with Path("metrics.jsonl").open("w", buffering=1) as log:
    for step in range(STEPS):
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log.write(json.dumps({"step": step, "loss": loss.item(), "kl": 1e-3 / (step + 1)}) + "\n")
        shown = f"loss {loss.item():.2f} | kl {1e-3 / (step + 1):.2f} | entropy {step / 4:.2f}"
        print(f"step {step}/{STEPS} | {shown}", flush=True)
        time.sleep(0.05)
print("done", flush=True)
