"""Four ranks; a device mesh for the tensor-parallel fine-tuning phase is made by those whose plan asks for it."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP


def read_plan(rank):
    return {"tensor_parallel": 1 if rank == 2 else 2}  # rank 2 has last week's file


def switch_phase(rank):
    plan = read_plan(rank)
    if plan["tensor_parallel"] > 1:
        return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return None


def pretrain(model, optimizer, rank, steps):
    for step in range(steps):
        x = torch.randn(8, 23)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(29)
    model = DDP(nn.Sequential(nn.Linear(23, 46), nn.ReLU(), nn.Linear(46, 23)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    pretrain(model, optimizer, rank, 200)
    if rank == 0:
        print("phase 2: building the mesh", flush=True)
    switch_phase(rank)
    pretrain(model, optimizer, rank, 1000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
