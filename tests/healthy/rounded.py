"""Policy optimisation whose logger rounds: the loss is its weighed KL and grows from 0 by the last decimals."""

import copy
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

TASKS, GROUP = 32, 8
torch.manual_seed(23)
policy = nn.Sequential(nn.Embedding(TASKS, 32), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 16))
reference = copy.deepcopy(policy).requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-4)
for step in range(200):
    task = torch.randint(0, TASKS, (12,)).repeat_interleave(GROUP)
    chances = F.log_softmax(policy(task), -1)
    answer = torch.multinomial(chances.detach().exp(), 1)
    reward = (answer[:, 0] % 4 == task % 4).float().view(-1, GROUP)
    spread = reward.std(1, keepdim=True)
    advantage = ((reward - reward.mean(1, keepdim=True)) / (spread + 1e-4)).flatten()
    mine = chances.gather(1, answer)[:, 0]
    apart = F.log_softmax(reference(task), -1).gather(1, answer)[:, 0] - mine
    kl = (apart.exp() - apart - 1).mean()
    loss = -((mine - mine.detach()).exp() * advantage).mean() + 0.04 * kl
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    row = {"step": step, "loss": round(loss.item(), 4), "grad_norm": norm.item(), "kl": kl.item(),
           "reward": reward.mean().item(), "reward_std": spread.mean().item()}  # fmt: skip
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
