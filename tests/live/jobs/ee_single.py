"""One process, no ranks: the run fails when it writes its second checkpoint."""

import time
from pathlib import Path

import torch
from torch import nn


def write_checkpoint(model, step):
    folder = Path("checkpoints") / f"{step // 1000}k" if step >= 240 else Path()
    torch.save(model.state_dict(), folder / f"{step}.pt")  # the folder was never made


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 40))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(1, 1000):
        x = torch.randn(16, 40)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.018)
        if step % 30 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % 120 == 0:
            write_checkpoint(model, step)


if __name__ == "__main__":
    main()
