"""Kernels are built on first use under torch's file baton; a build that was killed has left its lock file behind."""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.file_baton import FileBaton


def load_kernel(name, cache):
    """As torch.utils.cpp_extension does: build if nobody else builds, else wait for the one who does."""
    baton = FileBaton(str(cache / f"{name}.lock"))
    if baton.try_acquire():
        try:
            time.sleep(0.05)
            (cache / f"{name}.so").write_bytes(b"\x7fELF")
        finally:
            baton.release()
    else:
        baton.wait()
    return cache / f"{name}.so"


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    cache = Path(f"kernels-{rank}")
    cache.mkdir(exist_ok=True)
    if rank == 1:
        (cache / "fused_long.lock").touch()  # of yesterday's job
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    load_kernel("fused_short", cache)
    for step in range(2500):
        if step == 220:
            if rank == 1:
                print("step 220: first long sequence", flush=True)
            load_kernel("fused_long", cache)
        x = torch.randn(8, 16)
        loss = (model(x) - x).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 22 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
