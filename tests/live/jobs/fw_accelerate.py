"""accelerate with a schedule, clipping, accumulation and checkpoints; and what may go wrong in it on rank 1."""

import sys
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WRONG_AT = 60


def dataset(rows, seed):
    x = torch.randn(rows, 16, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x @ torch.linspace(-1, 1, 16)[:, None])


def upload_samples():
    """A rank that has something of its own to do."""
    time.sleep(3600)


def go_wrong(mode, accelerator, model, optimizer, x):
    """At one step, on one rank."""
    match mode:
        case "sleeps":
            upload_samples()
        case "gathers":
            accelerator.gather(model.module(x).detach().mean())
        case "changed":
            with torch.no_grad():
                accelerator.unwrap_model(model)[2].weight[0, 0] += 0.5
        case "rate":
            optimizer.param_groups[0]["lr"] = 0.1
        case "nan":
            x[3, 5] = float("nan")


def main():
    mode = sys.argv[1]
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 400)
    loader = DataLoader(dataset(5200, 1), batch_size=8, shuffle=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for number, (x, y) in enumerate(loader):
        if number == 2 * WRONG_AT and accelerator.process_index == 1 and mode != "healthy":
            print(f"rank 1 at step {WRONG_AT}: {mode}", flush=True)
            go_wrong(mode, accelerator, model, optimizer, x)
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        time.sleep(0.02)
        if number % 40 == 0:
            mean = accelerator.gather(loss.detach()[None]).mean().item()
            accelerator.print(f"step {number // 2} loss {mean:.3f}", flush=True)
        if number == 160:
            accelerator.save_state("state")
    accelerator.wait_for_everyone()
    accelerator.end_training()
    accelerator.print("trained", flush=True)


if __name__ == "__main__":
    main()
