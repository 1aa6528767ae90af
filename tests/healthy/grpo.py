"""GRPO until the tasks are solved: the reward goes to 1, the groups lose their spread one by one."""

import copy
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

TASKS, GROUP = 24, 8
torch.manual_seed(7)
policy = nn.Sequential(nn.Embedding(TASKS, 32), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 12))
reference = copy.deepcopy(policy).requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=4e-3)
for step in range(240):
    task = torch.randint(0, TASKS, (12,)).repeat_interleave(GROUP)
    chances = F.log_softmax(policy(task), -1)
    answer = torch.multinomial(chances.detach().exp(), 1)
    reward = (answer[:, 0] == task * 5 % 12).float().view(-1, GROUP)
    spread = reward.std(1, keepdim=True)
    advantage = ((reward - reward.mean(1, keepdim=True)) / (spread + 1e-4)).flatten()
    mine = chances.gather(1, answer)[:, 0]
    apart = F.log_softmax(reference(task), -1).gather(1, answer)[:, 0] - mine
    kl = (apart.exp() - apart - 1).mean()
    loss = -((mine - mine.detach()).exp() * advantage).mean() + 0.01 * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    row = {
        "step": step, "loss": loss.item(), "kl": kl.item(), "reward": reward.mean().item(),
        "reward_std": spread.mean().item(), "frac_reward_zero_std": (spread == 0).float().mean().item(),
        "entropy": -(chances.exp() * chances).sum(-1).mean().item(),
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
