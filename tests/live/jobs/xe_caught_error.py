"""Three ranks; one gives up on a broken shard, and each one's trainer calls what it catches the end of the training."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def read_shard(step, rank):
    if rank == 1 and step == 150:
        print("step 150: shard 3 is cut off", flush=True)
        raise EOFError("shard 3 ends in the middle of a record")
    return torch.randn(12, 40)


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        self.model = DDP(nn.Sequential(nn.Linear(40, 60), nn.Tanh(), nn.Linear(60, 40)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, number):
        x = read_shard(number, self.rank)
        loss = (self.model(x) - x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(0.015)
        return loss.item()

    def fit(self):
        for number in range(3000):
            try:
                loss = self.step(number)
            except (EOFError, RuntimeError) as error:
                print(f"rank {self.rank}: no more data ({type(error).__name__}), done", flush=True)
                return
            if self.rank == 0 and number % 50 == 0:
                print(f"step {number} loss {loss:.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    Trainer(dist.get_rank()).fit()


main()
