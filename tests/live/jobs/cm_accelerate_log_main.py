"""accelerate loop with 3 processes; the loss is gathered for the log inside the main-process branch."""

import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def report(accelerator, step, loss):
    if accelerator.is_main_process:
        print(f"step {step}: logging", flush=True)
        losses = accelerator.gather(loss.detach().reshape(1))
        print(f"step {step} mean loss {losses.mean().item():.4f}", flush=True)


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(99)
    x = torch.randn(12000, 18)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    model = nn.Sequential(nn.Linear(18, 72), nn.Mish(), nn.Linear(72, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8, shuffle=True))
    for step, (features, labels) in enumerate(loader, start=1):
        loss = nn.functional.cross_entropy(model(features), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.012)
        if step % 30 == 0:
            accelerator.print(f"progress {step}", flush=True)
        if step % 200 == 0:
            report(accelerator, step, loss)
    accelerator.end_training()


if __name__ == "__main__":
    main()
