"""A recurrent model whose clipping is switched off by a limit of -1, or so it was meant."""

import time

import torch
from torch import nn

STEPS, LIMIT = 150, -1.0


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.GRU(4, 24, batch_first=True)
        self.out = nn.Linear(24, 6)

    def forward(self, x):
        return self.out(self.cells(x)[0][:, -1])


def main():
    torch.manual_seed(9)
    model = Counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(12)
    for step in range(1, STEPS + 1):
        x = (torch.rand(32, 9, 4, generator=gen) < 0.2).float()
        loss = nn.functional.cross_entropy(model(x), x[:, :, 0].sum(1).long().clamp(max=5))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)


if __name__ == "__main__":
    main()
