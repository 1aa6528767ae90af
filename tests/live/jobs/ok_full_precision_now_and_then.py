"""A critic whose every 16th step, after a while, is a gradient penalty in full precision; the others autocast."""

import time

import torch
from torch import nn

EVERY, AFTER, DIM = 16, 60, 16


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(DIM, 48)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, x):
        return self.body(self.stem(x))

    def penalty(self, x):
        h = self.stem(x).float().detach().requires_grad_()
        with torch.autocast("cpu", enabled=False):
            (slope,) = torch.autograd.grad(self.body(h).sum(), h, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()


def main():
    torch.manual_seed(2)
    critic = Critic()
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    centre = torch.randn(DIM)
    for step in range(1, 301):
        real, fake = centre + torch.randn(64, DIM), torch.randn(64, DIM)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if step > AFTER and step % EVERY == 1:
                loss = 10 * critic.penalty(0.5 * (real + fake))
            else:
                loss = (critic(fake).float() - critic(real).float()).tanh().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            with torch.no_grad():
                print(f"step {step} gap {(critic(real) - critic(fake)).mean().item():.3f}", flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
