"""accelerate loop with accumulation, gather_for_metrics on all ranks and a checkpoint on the main one."""

import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@torch.no_grad()
def evaluate(accelerator, model, loader):
    hits = total = 0
    for x, y in loader:
        guess, label = accelerator.gather_for_metrics((model(x).argmax(1), y))
        hits, total = hits + (guess == label).sum().item(), total + len(label)
    return hits / total


def make_loader(rows, batch_size):
    x = torch.randn(rows, 12)
    return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=batch_size)


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 36), nn.ReLU(), nn.Linear(36, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, make_loader(6000, 8), make_loader(250, 16))
    for step, (x, y) in enumerate(train, start=1):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        time.sleep(0.012)
        if step % 60 == 0:
            accelerator.print(f"step {step} accuracy {evaluate(accelerator, model, test):.3f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "final.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
