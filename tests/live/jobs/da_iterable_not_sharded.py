"""One process, and an iterable dataset that each of its three workers goes through from end to end."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        draw = torch.Generator().manual_seed(5)
        for _ in range(600):
            x = torch.randn(6, generator=draw)
            yield x, x.sum()


def main():
    torch.manual_seed(1)
    net = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in DataLoader(Stream(), batch_size=20, num_workers=3):
        loss = nn.functional.mse_loss(net(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    print("done", flush=True)


if __name__ == "__main__":
    main()
