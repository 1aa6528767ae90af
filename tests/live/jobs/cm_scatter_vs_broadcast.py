"""Bandit tuning on 4 ranks: rank 0 hands out learning rates, the same for all or one each."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def hand_out(rate, per_rank):
    """Send the rate(s) of rank 0 to everybody."""
    box = torch.tensor([rate])
    if per_rank:
        rates = [torch.tensor([rate * (1 + r)]) for r in range(dist.get_world_size())]
        dist.scatter(box, rates if dist.get_rank() == 0 else None, src=0)
    else:
        dist.broadcast(box, src=0)
    return box.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(18)
    model = DDP(nn.Sequential(nn.Linear(12, 24), nn.Hardswish(), nn.Linear(24, 12)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 2000):
        if step % 40 == 0:
            per_rank = rank == 0 and step >= 200
            if per_rank:
                print(f"step {step}: exploring one rate per rank", flush=True)
            optimizer.param_groups[0]["lr"] = hand_out(0.01, per_rank)
        x = torch.randn(8, 12)
        loss = (model(x) - x.sort(1).values).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
