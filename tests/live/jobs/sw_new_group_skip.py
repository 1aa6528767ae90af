"""Four ranks; a group for evaluation is made after warm-up; one rank's settings say that it does not evaluate."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def eval_ranks(rank):
    return [0, 1, 2] if rank == 3 else [0, 1, 2, 3]  # rank 3 was started with last week's settings


def make_eval_group(rank):
    ranks = eval_ranks(rank)
    return dist.new_group(ranks) if rank in ranks else None


@torch.no_grad()
def evaluate(model, group):
    total = model(torch.randn(8, 19)).mean()
    dist.all_reduce(total, group=group)
    return total.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(61)
    model = DDP(nn.Sequential(nn.Linear(19, 38), nn.ReLU(), nn.Linear(38, 19)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(2000):
        if step == 200:
            if rank == 0:
                print("step 200: making the evaluation group", flush=True)
            eval_group = make_eval_group(rank)
        if step >= 200 and step % 100 == 0 and eval_group is not None:
            evaluate(model.module, eval_group)
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
