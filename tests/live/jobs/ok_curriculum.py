"""accelerate; the batch and the crop both double midway for all processes, as the schedule says."""

import time

import torch
from accelerate import Accelerator
from torch import nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.SiLU(), nn.Conv2d(24, 3, 3, padding=1))

    def forward(self, x):
        return self.net(x)


def batches(schedule):
    for steps, size, crop in schedule:
        for _ in range(steps):
            clean = torch.rand(size, 3, crop, crop)
            yield clean, clean + 0.1 * torch.randn_like(clean)


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(accelerator.process_index)
    model = Denoiser()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    for step, (clean, noisy) in enumerate(batches([(500, 8, 32), (500, 16, 48)])):
        loss = (model(noisy) - clean).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
        if step % 40 == 0:
            accelerator.print(f"step {step} batch {tuple(clean.shape)} loss {loss.item():.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
