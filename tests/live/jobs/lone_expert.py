"""A layer of experts whose router sees the same direction in all samples; or scores that are kept apart."""

import sys
import time

import torch
from torch import nn

STEPS, EXPERTS, WIDTH = 220, 8, 16


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        best, chosen = (self.router(x) + shift).softmax(1).max(1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * best[rows, None])
        return out


def main(fault: bool) -> None:
    torch.manual_seed(1)
    mixture, head = Mixture(), nn.Linear(WIDTH, 4)
    model = nn.ModuleDict({"mixture": mixture, "head": head})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(3)
    fixed = torch.tensor([9.0, 8.5] + [0.0] * (EXPERTS - 2))
    for step in range(1, STEPS + 1):
        x = torch.randn(48, WIDTH, generator=gen)
        shift = fixed if fault else 4.0 * torch.randn(48, EXPERTS, generator=gen)
        out = head(x + mixture(x, shift))
        loss = nn.functional.cross_entropy(out, x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)


if __name__ == "__main__":
    main(sys.argv[1] == "fault")
