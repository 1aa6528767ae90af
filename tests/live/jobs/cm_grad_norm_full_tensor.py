"""FSDP2 on 3 ranks; rank 0 logs the norm of the whole gradient of the head."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 60), nn.ReLU())
        self.head = nn.Linear(60, 30)

    def forward(self, x):
        return self.head(self.body(x))


def head_norm(model):
    return model.head.weight.grad.full_tensor().norm().item()


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(55)
    model = Net()
    fully_shard(model.body)
    fully_shard(model.head)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 1500):
        x = torch.randn(8, 30)
        loss = nn.functional.l1_loss(model(x), x.flip(1))
        loss.backward()
        if rank == 0 and step == 170:
            print("step 170: verbose logging on", flush=True)
        if rank == 0 and step >= 170:
            print(f"step {step} head gradient norm {head_norm(model):.4f}", flush=True)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.012)
        if rank == 0 and step % 17 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
