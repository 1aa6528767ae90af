"""Segmentation training; a rank that finds its fold exhausted tears its group down and writes predictions."""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PATIENCE = 5


def write_predictions(model, rank):
    """One file per volume; a few hundred of them."""
    out = Path(f"pred-{rank}")
    out.mkdir(exist_ok=True)
    for volume in range(500):
        with torch.no_grad():
            mask = model(torch.randn(1, 1, 24, 24)).argmax(1)
        torch.save(mask, out / f"{volume}.pt")
        time.sleep(0.1)


def train_fold(model, rank):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    bad = 0
    for step in range(2000):
        x = torch.randn(4, 1, 24, 24)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0.5).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if step % 25 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.3f}", flush=True)
        bad = bad + 1 if rank == 1 and step > 200 else 0
        if bad >= PATIENCE:
            print(f"rank {rank} out of patience at step {step}", flush=True)
            return


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    model = DDP(net)
    train_fold(model, rank)
    dist.destroy_process_group()
    write_predictions(net, rank)


if __name__ == "__main__":
    main()
