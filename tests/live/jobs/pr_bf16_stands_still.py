"""Fine-tuning of a model that was loaded in bfloat16, at a rate below what bfloat16 can add to its weights."""

import time

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.LayerNorm(128), nn.Linear(128, 10))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.where(parameter >= 0, 0.25, -0.25))  # as after a pretraining
    model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    rule = torch.randn(64, 10)
    for step in range(160):
        x = torch.randn(48, 64)
        loss = nn.functional.cross_entropy(model(x.bfloat16()).float(), (x @ rule).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.06)


if __name__ == "__main__":
    main()
