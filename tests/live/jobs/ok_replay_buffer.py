# mypy: ignore-errors
"""Off-policy training: a replay buffer fills for 150 steps and then turns over; each round's outputs are let go of."""

import time
from collections import deque

import torch
from torch import nn

ROUND = 60


def main():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    replay = deque(maxlen=150)
    values = []
    for step in range(300):
        states = torch.randn(512, 512)
        replay.append((states, torch.randint(0, 8, (512,))))
        old, actions = replay[torch.randint(len(replay), ()).item()]
        out = model(old)
        loss = nn.functional.cross_entropy(out, actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(torch.cat([out.detach()] * 32, 1))
        if len(values) == ROUND:
            print(f"step {step} value {torch.stack(values).mean().item():.4f}", flush=True)
            values = []
        time.sleep(0.03)


main()
