"""No ranks at all: one process trains; its loader worker waits for a tool that converts an image."""

import subprocess
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Converted(Dataset):
    def __len__(self):
        return 8000

    def convert(self, i):
        """One picture in 2000 is in the old format."""
        if i % 2000 == 1999:
            print(f"converting picture {i}", flush=True)
            tool = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            return len(tool.stdout.read())
        return i % 6

    def __getitem__(self, i):
        return torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(i)), self.convert(i)


def main():
    torch.manual_seed(50)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step, (x, y) in enumerate(DataLoader(Converted(), batch_size=10, num_workers=1)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
