"""REINFORCE with noisy rewards: the policy finds the right actions, its entropy falls, the reward saturates."""

import json
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)
policy = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
right = torch.randn(6, 4)
baseline = 0.0
for step in range(240):
    seen = torch.randn(64, 6)
    chances = F.log_softmax(policy(seen), -1)
    action = torch.multinomial(chances.detach().exp(), 1)
    reward = (action[:, 0] == (seen @ right).argmax(1)).float() + 0.5 * torch.randn(64)
    entropy = -(chances.exp() * chances).sum(-1).mean()
    loss = -((reward - baseline) * chances.gather(1, action)[:, 0]).mean() - 0.01 * entropy
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    row = {"step": step, "loss": loss.item(), "reward": reward.mean().item(), "entropy": entropy.item()}
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
