"""ZeroRedundancyOptimizer with DDP; the optimizer state is consolidated where it is saved, on rank 0."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def save_checkpoint(model, optimizer, step):
    optimizer.consolidate_state_dict(to=0)
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, f"ckpt-{step}.pt")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(14)
    model = DDP(nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 80), nn.ReLU(), nn.Linear(80, 6)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    for step in range(1, 1500):
        x = torch.randn(16, 40)
        loss = nn.functional.cross_entropy(model(x), x[:, :6].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if rank == 0 and step == 200:
            print("step 200: checkpoint", flush=True)
            save_checkpoint(model, optimizer, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
