"""Two ranks wait, at the end of a stage, for a controller that announces the next one by a key in the store."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def stage_plan(stage):
    """The controller writes the plan under this key."""
    store = dist.distributed_c10d._get_default_store()
    return store.get(f"controller/stage-{stage}").decode()


def train_stage(model, optimizer, stage, rank):
    for step in range(220):
        x = torch.randn(8, 26) * stage
        loss = (model(x) - x).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 20 == 0:
            print(f"stage {stage} step {step} loss {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(90)
    model = DDP(nn.Sequential(nn.Linear(26, 52), nn.ReLU(), nn.Linear(52, 26)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train_stage(model, optimizer, 1, rank)
    print(f"rank {rank} waits for the plan of stage 2", flush=True)
    plan = stage_plan(2)
    train_stage(model, optimizer, int(plan), rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
