"""Healthy: weights in bfloat16 alone, first warmed up and then at a rate that moves them, with an even evaluation."""

import time

import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(width))  # around 1, kept as what is added to it

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x.float(), x.shape[-1:]).to(x.dtype) * (1 + self.scale)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(200, 48), Norm(48), nn.Flatten(), nn.Linear(48 * 4, 64), nn.SiLU(), Norm(64),
                          nn.Linear(64, 200)).to(torch.bfloat16)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: (n + 1) / 60 if n < 60 else max(0.0, 1 - (n - 60) / 140)
    )
    for step in range(200):
        tokens = torch.randint(0, 40, (64, 4))  # most rows of the embedding have no gradient
        loss = nn.functional.cross_entropy(model(tokens).float(), (tokens.sum(1)) % 200)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
