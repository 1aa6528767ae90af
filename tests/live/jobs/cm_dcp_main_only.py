"""FSDP2 on two ranks; the distributed checkpoint is written by the main rank alone."""

import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard


def write_checkpoint(model, step):
    dcp.save({"model": model.state_dict()}, checkpoint_id=f"step-{step}")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(77)
    model = nn.Sequential(nn.Linear(24, 48), nn.SiLU(), nn.Linear(48, 24))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, 1500):
        x = torch.randn(8, 24)
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.012)
        if rank == 0:
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step == 180:
                print("step 180: writing checkpoint", flush=True)
                write_checkpoint(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
