"""A float16 run whose heads sum unscaled distances: each forward pass is inf, and the scaler skips for ever."""

import time

import torch
from torch import nn


class Pairs(nn.Module):
    """Scores pairs by their squared distance, which float16 cannot hold once the features are long."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(32, 64), nn.Linear(32, 64)
        self.score = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, gain: float) -> torch.Tensor:
        a, b = self.left(x) * gain, self.right(x) * gain
        distances = a @ b.transpose(0, 1)
        return self.score(distances[:, :16])


def main() -> None:
    torch.manual_seed(0)
    model = Pairs()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    skipped = 0
    for step in range(200):
        gain = 1.0 if step < 60 else 400.0  # another data set, in other units
        if step == 60:
            print("second data set", flush=True)
        x, y = torch.randn(32, 32), torch.randint(0, 4, (32,))
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x, gain).float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():g} skipped {skipped}", flush=True)
        time.sleep(0.04)
    print("done", flush=True)


if __name__ == "__main__":
    main()
