"""Three ranks; one calls a vendor library through ctypes that never comes back and does not release the GIL."""

import ctypes
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Meter:
    """Power meter of the node; PyDLL because the library calls back into Python."""

    def __init__(self):
        self.lib = ctypes.PyDLL(None)

    def sample(self, settle_s):
        return self.lib.sleep(settle_s)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(64)
    meter = Meter()
    model = DDP(nn.Sequential(nn.Embedding(100, 16), nn.Flatten(), nn.Linear(16 * 10, 100)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3000):
        tokens = torch.randint(0, 100, (8, 10))
        loss = nn.functional.cross_entropy(model(tokens), tokens[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 1 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
            meter.sample(0 if step < 240 else 900)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
