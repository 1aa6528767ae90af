"""Preference optimisation from a trained policy: the loss begins at ln 2 and falls slowly."""

import copy
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(14)
policy = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 50))
reference = copy.deepcopy(policy).requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-4)
taste = torch.randn(16, 50)
for step in range(200):
    prompt = torch.randn(32, 16)
    pair = torch.randint(0, 50, (32, 2))
    worth = (prompt @ taste).gather(1, pair) + 2.0 * torch.randn(32, 2)
    pair = torch.where((worth[:, :1] < worth[:, 1:]), pair.flip(1), pair)
    mine = F.log_softmax(policy(prompt), -1).gather(1, pair)
    with torch.no_grad():
        theirs = F.log_softmax(reference(prompt), -1).gather(1, pair)
    rewards = 0.1 * (mine - theirs)
    margin = rewards[:, 0] - rewards[:, 1]
    loss = -F.logsigmoid(margin).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    row = {
        "step": step, "loss": loss.item(), "rewards/chosen": rewards[:, 0].mean().item(),
        "rewards/rejected": rewards[:, 1].mean().item(), "rewards/accuracies": (margin > 0).float().mean().item(),
        "rewards/margins": margin.mean().item(),
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
