"""Users and items as tables of embeddings: nearly all parameters are in them, and each step touches few rows."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(20)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_embedding = nn.Embedding(3000, 16)
        self.item_embedding = nn.Embedding(5000, 16)
        self.top = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, item):
        return self.top(torch.cat([self.user_embedding(user), self.item_embedding(item)], 1))[:, 0]


model = Recommender()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(200):
    user, item = torch.randint(0, 3000, (512,)), torch.randint(0, 5000, (512,))
    clicked = ((user % 7 == item % 7) | (torch.rand(512) < 0.1)).float()
    loss = F.binary_cross_entropy_with_logits(model(user, item), clicked)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} bce {loss.item():.4f}", flush=True)
    time.sleep(0.02)
