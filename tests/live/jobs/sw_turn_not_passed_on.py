"""Ranks write by turns: each asks a counter in the store until it is its turn. One rank does not pass the turn on."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

EVERY, LOST = 30, 3


class Turns:
    def __init__(self, store, rank, world):
        self.store, self.rank, self.world = store, rank, world

    def await_turn(self, number):
        wanted = number * self.world + self.rank
        while self.store.add("writers/turn", 0) < wanted:
            time.sleep(0.05)

    def pass_on(self):
        self.store.add("writers/turn", 1)


def write_part(turns, number, rows):
    turns.await_turn(number)
    if turns.rank == 0 and number == LOST:
        print("part 3 of rank 0 is empty: nothing to write", flush=True)
        return
    time.sleep(0.02 + 1e-6 * len(rows))
    turns.pass_on()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    turns = Turns(dist.distributed_c10d._get_default_store(), rank, world)
    torch.manual_seed(9)
    model = DDP(nn.Linear(10, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 100_000):
        x = torch.randn(32, 10, generator=generator)
        loss = (model(x) - x[:, :4]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % EVERY == 0:
            write_part(turns, step // EVERY - 1, x)


if __name__ == "__main__":
    main()
