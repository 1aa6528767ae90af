"""Three ranks; an exception ends the main thread of one, but its heartbeat thread keeps the process alive."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def beat():
    while True:
        time.sleep(0.5)


def clip(model, limit):
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    if not norm < 1e4:
        raise FloatingPointError(f"gradient norm {norm}")
    return norm


def main():
    threading.Thread(target=beat, name="heartbeat").start()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3000):
        x = torch.randn(8, 16)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        if rank == 1 and step == 210:
            print("step 210: rank 1 has a bit flip", flush=True)
            next(model.parameters()).grad.fill_(1e9)
        clip(model, 1.0)
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
