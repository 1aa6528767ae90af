"""Three ranks; one is killed (as by the kernel, for memory) inside its forward pass."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Attention(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if x.shape[1] > 64:  # the score matrix of this document does not fit
            print(f"attention over {x.shape[1]} tokens", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return self.out(torch.softmax(q @ k.transpose(1, 2), -1) @ v)


def document(rank, step):
    return torch.randn(2, 4096 if rank == 1 and step == 230 else 32, 24)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(Attention())
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2000):
        x = document(rank, step)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
