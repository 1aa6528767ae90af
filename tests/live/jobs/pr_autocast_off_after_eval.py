"""A trainer that switches autocast off for an exact evaluation, and does not switch it on again."""

import time

import torch
from torch import nn


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.mixed = True
        self.model = nn.Sequential(nn.Linear(20, 80), nn.ReLU(), nn.Linear(80, 5))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.rule = torch.randn(20, 5)

    def loss(self) -> torch.Tensor:
        x = torch.randn(64, 20)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.mixed):
            return nn.functional.cross_entropy(self.model(x).float(), (x @ self.rule).argmax(1))

    def evaluate(self) -> float:
        self.mixed = False
        self.model.eval()
        with torch.no_grad():
            value = self.loss().item()
        self.model.train()
        return value

    def train(self) -> None:
        for step in range(180):
            loss = self.loss()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step == 60:
                print(f"first evaluation {self.evaluate():.4f}", flush=True)
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    Trainer().train()
