"""Four ranks report each step to a tracking service; the client of one of them is told to slow down, and obeys."""

import json
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tracker:
    """Batches metrics, and keeps to the limit that the service has set for this run."""

    def __init__(self, rank):
        self.rank, self.pause_s, self.queue = rank, 0.0, []

    def on_response(self, status):
        if status == 429:
            print(f"rank {self.rank}: tracker answers 429, sending slower", flush=True)
            self.pause_s = 0.11

    def log(self, **metrics):
        self.queue.append(json.dumps(metrics))
        if self.pause_s:
            time.sleep(self.pause_s)
        self.queue.clear()


def train_step(model, optimizer, x):
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    tracker = Tracker(rank)
    model = DDP(nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(430):
        time.sleep(0.025)
        loss = train_step(model, optimizer, torch.randn(32, 48))
        if step == 260 and rank == 2:
            tracker.on_response(429)
        tracker.log(step=step, loss=loss)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
