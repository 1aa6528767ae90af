"""Four ranks; a group for evaluation is made after warm-up, by every rank but the one that never evaluates."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

EVAL_RANKS = [0, 1, 2]


def make_eval_group(rank):
    return dist.new_group(EVAL_RANKS) if rank in EVAL_RANKS else None


def make_log_group():
    return dist.new_group([0, 3])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(61)
    model = DDP(nn.Sequential(nn.Linear(19, 38), nn.ReLU(), nn.Linear(38, 19)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(2000):
        if step == 200:
            if rank == 0:
                print("step 200: making groups", flush=True)
            eval_group = make_eval_group(rank)
            if eval_group is not None:
                dist.all_reduce(torch.ones(1), group=eval_group)
            make_log_group()
        x = torch.randn(8, 19)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
