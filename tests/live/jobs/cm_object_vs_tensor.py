"""Curriculum training on 4 ranks: rank 0 announces the next stage; a newer helper sends it as an object."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def announce_tensor(stage):
    box = torch.tensor([stage])
    dist.broadcast(box, src=0)
    return int(box)


def announce_object(stage):
    box = [{"stage": stage, "lr": 0.1 / stage}]
    dist.broadcast_object_list(box, src=0)
    return box[0]["stage"]


def next_stage(rank, step):
    wanted = step // 50
    if rank == 2 and step >= 200:
        return announce_object(wanted)
    return announce_tensor(wanted)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    stage = 1
    for step in range(1, 2000):
        if step % 50 == 0:
            if rank == 2 and step == 200:
                print("step 200: rank 2 uses the new helper", flush=True)
            stage = next_stage(rank, step)
        x = torch.rand(16, 10) * stage
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} stage {stage} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
