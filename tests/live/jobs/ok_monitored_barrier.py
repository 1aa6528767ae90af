"""monitored_barrier before each evaluation, used correctly; one rank comes 5 s late once."""

import datetime
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(15, 45), nn.ReLU(), nn.Linear(45, 15)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(1, 281):
        x = torch.randn(8, 15)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if step % 70 == 0:
            if step == 140 and rank == 1:
                time.sleep(5)
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=60))
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
