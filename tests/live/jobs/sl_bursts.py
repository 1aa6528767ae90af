"""Four ranks; from the second phase on one of them writes histograms of all weights at every 25th step."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Histograms:
    def __init__(self, model, bins=40):
        self.model, self.bins, self.written = model, bins, []

    def count(self, values):
        low, high = min(values), max(values)
        width = (high - low) / self.bins or 1.0
        counts = [0] * self.bins
        for value in values:
            counts[min(self.bins - 1, int((value - low) / width))] += 1
        return counts

    def write(self, step):
        for name, p in self.model.named_parameters():
            for what, values in (("weight", p.detach()), ("gradient", p.grad)):
                self.written.append((step, name, what, self.count(values.flatten().tolist())))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    model = DDP(nn.Sequential(nn.Linear(100, 1800), nn.ReLU(), nn.Linear(1800, 1000), nn.ReLU(), nn.Linear(1000, 10)))
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    histograms = Histograms(model.module)
    for step in range(1, 581):
        x = torch.randn(4, 100)
        loss = nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        if step == 240 and rank == 1:
            print("rank 1 starts phase 2, with histograms", flush=True)
        if step > 240 and step % 25 == 0 and rank == 1:
            histograms.write(step)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
