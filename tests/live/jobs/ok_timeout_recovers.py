"""A collective with a short timeout fails because a rank is late; all catch it, make a new group and go on."""

import datetime
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def try_reduce(value, group):
    try:
        dist.all_reduce(value, group=group)
    except RuntimeError as err:
        print(f"rank {dist.get_rank()}: statistics left out ({str(err)[:60]})", flush=True)
        return False
    return True


def make_statistics_group():
    return dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=3))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    statistics = make_statistics_group()
    model = DDP(nn.Sequential(nn.Linear(13, 26), nn.ReLU(), nn.Linear(26, 13)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(1, 301):
        x = torch.randn(8, 13)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if step % 50 == 0:
            if rank == 1 and step == 150:
                time.sleep(5)
            if not try_reduce(loss.detach().clone(), statistics):
                statistics = make_statistics_group()
            elif rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
