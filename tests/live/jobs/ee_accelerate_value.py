"""accelerate with two processes; the scheduler's table ends before the training does, on one rank."""

import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def weight_of(step, table):
    if step >= len(table):
        raise ValueError(f"no loss weight for step {step}: the table has {len(table)} entries")
    return table[step]


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(9000, 12))
    model = nn.Sequential(nn.Linear(12, 36), nn.ReLU(), nn.Linear(36, 12))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8))
    table = [1.0] * (220 if accelerator.process_index == 1 else 9000)
    for step, (x,) in enumerate(loader):
        if step == 219:
            accelerator.print("step 219: nearly there", flush=True)
        with accelerator.accumulate(model):
            loss = weight_of(step, table) * (model(x) - x).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        time.sleep(0.014)
        if step % 20 == 0:
            accelerator.print(f"step {step} loss {loss.item():.3f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
