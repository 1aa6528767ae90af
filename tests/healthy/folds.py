"""Cross-validation: five trainings one after the other in one process, each from new weights."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(25)
x = torch.randn(1500, 24)
y = (x @ torch.randn(24, 4)).argmax(1)
folds = torch.randperm(1500).chunk(5)
for number, held_out in enumerate(folds):
    model = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    rest = torch.cat([fold for fold in folds if fold is not held_out])
    for epoch in range(2):
        for rows in rest[torch.randperm(len(rest))].split(50):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        with torch.no_grad():
            unseen = F.cross_entropy(model(x[held_out]), y[held_out])
        print(f"fold {number} epoch {epoch} loss {loss.item():.4f} val_loss {unseen.item():.4f}", flush=True)
