"""Four stages of a pipeline by hand; one drops the gradient of a micro-batch that it finds empty."""

import time

import torch
import torch.distributed as dist

MICRO = 3
WIDTH = 24


class Stage:
    def __init__(self, rank, world):
        self.before, self.after = rank - 1, rank + 1 if rank + 1 < world else None
        self.weight = torch.randn(WIDTH, WIDTH) / WIDTH**0.5

    def forward(self):
        kept = []
        for _ in range(MICRO):
            x = torch.randn(WIDTH)
            if self.before >= 0:
                dist.recv(x, self.before)
            y = torch.tanh(self.weight @ x)
            if self.after is not None:
                dist.send(y, self.after)
            kept.append(y)
        return kept

    def backward(self, kept, skip):
        for number, y in enumerate(kept):
            gradient = torch.ones(WIDTH)
            if self.after is not None:
                dist.recv(gradient, self.after)
            self.weight -= 1e-4 * torch.outer(gradient * (1 - y * y), y)
            if self.before >= 0 and number != skip:
                dist.send(self.weight.T @ gradient, self.before)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    stage = Stage(rank, world)
    for step in range(3000):
        skip = 1 if rank == 2 and step == 110 else -1
        if skip >= 0:
            print("step 110: an empty micro-batch on rank 2", flush=True)
        stage.backward(stage.forward(), skip)
        time.sleep(0.01)


main()
