"""A recurrent network with clipped gradients that are large now and then, and accumulation over four batches."""

import time

import torch
import torch.nn.functional as F
from torch import nn

ACCUMULATED = 4
torch.manual_seed(19)
cell = nn.LSTM(8, 48, batch_first=True)
head = nn.Linear(48, 8)
parameters = [*cell.parameters(), *head.parameters()]
optimizer = torch.optim.RMSprop(parameters, lr=2e-3)
for step in range(120):
    total = 0.0
    optimizer.zero_grad()
    for _ in range(ACCUMULATED):
        kind = torch.randint(0, 8, (8, 30))
        x = F.one_hot(kind, 8).float()
        target = torch.roll(kind, 2, 1)
        out = head(cell(x)[0])
        loss = F.cross_entropy(out[:, 2:].flatten(0, 1), target[:, 2:].flatten()) / ACCUMULATED
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    print(f"update {step}\tloss {total:.4f}\tgrad norm {norm:.3f}", flush=True)
    time.sleep(0.02)
