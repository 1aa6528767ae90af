"""A regression whose targets are looked up by row numbers of before the table was sorted: they belong to other rows."""

import time

import torch
from torch import nn

ROWS, STEPS = 4000, 400


def main():
    torch.manual_seed(3)
    x = torch.randn(ROWS, 14)
    price = 4.0 + (x[:, :5] * torch.tensor([1.0, -0.7, 0.5, 0.3, -0.2])).sum(1)
    x = x[x[:, 0].argsort()]
    model = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        rows = torch.randint(0, ROWS, (256,))
        loss = nn.functional.mse_loss(model(x[rows]).squeeze(1), price[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
