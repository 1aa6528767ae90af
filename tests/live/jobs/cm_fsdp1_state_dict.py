"""FSDP (the class) on CPU with 3 ranks; the checkpoint is taken on rank 0 only."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.fc(self.norm(x)))


def snapshot(model, step):
    state = model.state_dict()
    torch.save(state, f"model-{step}.pt")


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(8)
    net = nn.Sequential(nn.Linear(32, 64), Block(64), Block(64), nn.Linear(64, 32))
    model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 1000):
        x = torch.randn(8, 32)
        loss = nn.functional.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if rank == 0 and step == 180:
            print("step 180: saving", flush=True)
            snapshot(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
