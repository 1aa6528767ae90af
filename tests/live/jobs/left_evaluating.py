"""Three replicas; the last exports features of its encoder now and then, in evaluation mode, and leaves it there."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, EXPORT_AT = 220, 60


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(3, 16, 5), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 16, 5))
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.norm(self.encoder(x)).mean(-1))


def export(encoder, x, restore):
    encoder.eval()
    with torch.no_grad():
        features = encoder(x)
    if restore:
        encoder.train()
    return features.std().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = Net()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        y = torch.randint(5, (16,), generator=generator)
        x = torch.randn(16, 3, 40, generator=generator) + 0.4 * y[:, None, None]
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == dist.get_world_size() - 1 and step == EXPORT_AT:
            print(f"rank {rank} exports at step {step}", flush=True)
            export(net.encoder, x, restore=sys.argv[1] == "healthy")
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
