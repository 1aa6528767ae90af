"""Five short epochs with a barrier, object gathers and a broadcast of the schedule between them."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def between_epochs(epoch, rank, loss):
    dist.barrier()
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, {"rank": rank, "loss": loss})
    schedule = [{"lr": 0.05 / (epoch + 1)}]
    dist.broadcast_object_list(schedule, src=0)
    return rows, schedule[0]["lr"]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(9, 27), nn.ReLU(), nn.Linear(27, 9)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(5):
        for _ in range(60):
            x = torch.randn(8, 9)
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.012)
        rows, lr = between_epochs(epoch, rank, loss.item())
        optimizer.param_groups[0]["lr"] = lr
        if rank == 0:
            print(f"epoch {epoch} losses {[round(row['loss'], 3) for row in rows]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
