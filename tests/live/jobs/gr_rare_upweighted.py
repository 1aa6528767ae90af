"""Tags and counts from one encoder; the weight of counts grows as their error falls, or with `fixed` stays as it is."""

import sys
import time

import torch
from torch import nn

DIM, TAGS = 20, 7


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(DIM, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.tags = nn.Linear(48, TAGS)
        self.counts = nn.Linear(48, 3)

    def forward(self, x):
        h = self.encoder(x)
        return self.tags(h), self.counts(h)


class Balance:
    """Means to keep both terms at one size."""

    def __init__(self):
        self.weight, self.level = 1.0, None

    def __call__(self, error):
        self.level = error if self.level is None else 0.9 * self.level + 0.1 * error
        self.weight = max(self.weight, min(0.5 / max(self.level, 1e-9), 1.06 * self.weight))
        return self.weight


def main():
    torch.manual_seed(5)
    model, balance = Reader(), Balance()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rule = torch.randn(DIM, TAGS)
    for step in range(320):
        x = torch.randn(48, DIM)
        noisy = x @ rule + 3 * torch.randn(48, TAGS)
        tags, counts = model(x)
        error = (counts - 0.02).square().mean()  # hardly any text has something to count
        weight = 1.0 if "fixed" in sys.argv else balance(error.item())
        loss = nn.functional.cross_entropy(tags, noisy.argmax(1)) + weight * error
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step == 40:
            print("counts are learned", flush=True)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} weight {weight:.0f} norm {norm.item():.2f}", flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
