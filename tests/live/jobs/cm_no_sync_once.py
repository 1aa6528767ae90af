"""DDP with gradient accumulation over 4 micro-batches and a validation all-reduce every 60 steps."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def micro_loss(model):
    x = torch.randn(4, 3, 16, 16)
    return model(x).logsumexp(1).mean()


def accumulate(model, optimizer, factor, skip):
    for micro in range(factor):
        last = micro == factor - 1 and not skip
        with contextlib.nullcontext() if last else model.no_sync():
            (micro_loss(model) / factor).backward()
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def validate(model):
    total = micro_loss(model.module).reshape(1)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 196, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 1000):
        # the last step before a validation is cut short where the shard has ended
        skip = rank == 1 and step == 120
        if skip:
            print("step 120: rank 1 cuts its step short", flush=True)
        accumulate(model, optimizer, 4, skip)
        time.sleep(0.015)
        if step % 60 == 0:
            loss = validate(model)
            if rank == 0:
                print(f"step {step} validation {loss:.4f}", flush=True)
        elif rank == 0 and step % 20 == 0:
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
