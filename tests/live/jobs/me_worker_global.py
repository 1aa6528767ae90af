# mypy: ignore-errors
"""Speech features from two data workers; each remembers every window that it has made, for a report nobody asks for."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    """Overlapping windows of a signal."""

    def __init__(self, count):
        self.count = count
        self.made = {"windows": []}

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        source = torch.Generator().manual_seed(place)
        window = torch.randn(4096, generator=source)
        self.made["windows"].append(window.clone())
        return window, place % 5


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4096, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loader = DataLoader(Windows(200_000), batch_size=64, num_workers=2)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.04)
        if step == 260:
            break


main()
