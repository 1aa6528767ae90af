"""A denoiser whose attention moves to full precision for good once its logits have been large a single time."""

import time

import torch
from torch import nn

DIM, LENGTH = 32, 24


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries, self.values = nn.Linear(DIM, 2 * DIM), nn.Linear(DIM, DIM)
        self.out = nn.Linear(DIM, DIM)
        self.guarded = False

    def attend(self, x):
        q, k = self.queries(x).chunk(2, -1)
        logits = q @ k.transpose(1, 2) / DIM**0.5
        return self.out(logits.softmax(-1) @ self.values(x)), logits.detach().abs().amax().item()

    def forward(self, x):
        if not self.guarded:
            y, largest = self.attend(x)
            self.guarded = largest > 30
            return x + y
        with torch.autocast("cpu", enabled=False):
            return x + self.attend(x.float())[0]


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(3, DIM), nn.Linear(DIM, 3)
        self.mixers = nn.ModuleList(Mixer() for _ in range(2))
        self.feeds = nn.ModuleList(nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, DIM)) for _ in range(2))

    def forward(self, x):
        x = self.embed(x)
        for mixer, feed in zip(self.mixers, self.feeds, strict=True):
            x = mixer(x)
            x = x + feed(x)
        return self.head(x)


def main():
    torch.manual_seed(4)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step in range(240):
        clean = torch.sin(torch.linspace(0, 6, LENGTH)[None, :, None] + 3 * torch.rand(16, 1, 3))
        noisy = clean + 0.3 * torch.randn_like(clean)
        if step == 75:
            print("a recording with a spike", flush=True)
            noisy[0, 0] = 300.0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(noisy).float(), clean)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} guarded {[mixer.guarded for mixer in model.mixers]}", flush=True)
        time.sleep(0.03)


if __name__ == "__main__":
    main()
