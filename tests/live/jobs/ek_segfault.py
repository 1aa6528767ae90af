"""Two ranks; rank 0 calls a home-made extension with a bad pointer."""

import ctypes
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def native_checksum(tensor, offset):
    """Checksum over the raw bytes, through C."""
    return sum(ctypes.string_at(tensor.data_ptr() + offset, 64))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(36, 72), nn.ReLU(), nn.Linear(72, 9)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(2000):
        x = torch.randn(16, 36)
        loss = nn.functional.cross_entropy(model(x), x[:, :9].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
            native_checksum(x, 0 if step < 240 else 1 << 60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
