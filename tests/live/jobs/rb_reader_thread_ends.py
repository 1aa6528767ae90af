"""A thread of rank 1 decodes records into a queue; a record that it cannot decode ends it, and the queue runs dry."""

import json
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BAD = 900


def record(rank, number):
    if rank == 1 and number == BAD:
        print("rank 1 comes to a record that is cut off", flush=True)
        return '{"x": [1.0, 2.'
    return json.dumps({"x": [((number + rank) * k) % 17 / 17 for k in range(1, 13)]})


def decode_into(rows, rank):
    number = 0
    while True:
        rows.put(json.loads(record(rank, number))["x"])
        number += 1


def next_batch(rows):
    return torch.tensor([rows.get() for _ in range(8)])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows = queue.Queue(maxsize=40)
    threading.Thread(target=decode_into, args=(rows, rank), name="decoder", daemon=True).start()
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(100_000):
        x = next_batch(rows)
        loss = (model(x)[:, 0] - x.square().mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
