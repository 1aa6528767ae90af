"""A mixture of experts with a small balancing term: experts that see no token have no gradient."""

import json
import time

import torch
import torch.nn.functional as F
from torch import nn

EXPERTS, WIDTH = 8, 32


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        chances = self.gate(x).softmax(-1)
        chosen = chances.argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * chances[rows, number, None])
        share = F.one_hot(chosen, EXPERTS).float().mean(0)
        return x + out, EXPERTS * (share * chances.mean(0)).sum()


torch.manual_seed(9)
tokens, mixture, head = nn.Embedding(100, WIDTH), Mixture(), nn.Linear(WIDTH, 100)
optimizer = torch.optim.AdamW([*tokens.parameters(), *mixture.parameters(), *head.parameters()], lr=3e-3)
for step in range(200):
    ids = torch.randint(0, 100, (24,)) if step % 10 else torch.randint(0, 20, (24,))
    hidden, balance = mixture(tokens(ids))
    lm_loss = F.cross_entropy(head(hidden), (ids * 7 + 2) % 100)
    loss = lm_loss + 0.01 * balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    row = {"step": step, "loss": loss.item(), "lm_loss": lm_loss.item(), "balance_loss": balance.item()}
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
