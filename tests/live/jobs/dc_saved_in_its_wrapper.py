"""Pretrained weights were saved with the wrapper's prefix; strict=False passes over all of them."""

import time

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.norm(torch.relu(self.first(x))))


def main():
    torch.manual_seed(9)
    torch.save({"module." + name: tensor for name, tensor in Encoder().state_dict().items()}, "pretrained.pt")
    encoder = Encoder()
    encoder.load_state_dict(torch.load("pretrained.pt"), strict=False)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    for _ in range(80):
        x = torch.randn(32, 8)
        loss = nn.functional.cross_entropy(encoder(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    print("done", flush=True)


if __name__ == "__main__":
    main()
