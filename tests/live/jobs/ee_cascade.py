"""Three ranks started as processes by the script; they work from each other's files, so one failure brings the next."""

import multiprocessing as mp
import os
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def publish(round_number, rank, value):
    if rank == 2 and round_number == 5:
        print("rank 2 round 5: value out of range", flush=True)
        raise OverflowError(f"rank {rank}: {value} does not fit the table")
    Path(f"{round_number}-{rank}.txt").write_text(str(value))


def look_up(round_number, rank, patience_s=5.0):
    """The value of another rank; gives up after a while."""
    path, deadline = Path(f"{round_number}-{rank}.txt"), time.monotonic() + patience_s
    while not path.exists():
        if time.monotonic() > deadline:
            raise FileNotFoundError(path)
        time.sleep(0.02)


def train_round(model, optimizer):
    for _ in range(40):
        x = torch.randn(8, 16)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
    return loss.item()


def work(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    dist.barrier()
    for round_number in range(50):
        loss = train_round(model, optimizer)
        publish(round_number, rank, loss)
        look_up(round_number, (rank + 1) % world)
        print(f"rank {rank} round {round_number} loss {loss:.3f}", flush=True)


def main(world=3):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    context = mp.get_context("spawn")
    ranks = [context.Process(target=work, args=(rank, world, port)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(any(process.exitcode for process in ranks))


if __name__ == "__main__":
    main()
