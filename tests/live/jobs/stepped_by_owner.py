"""Three replicas, each of which steps a third of the weights and sends them to the others; maybe not all of them."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS = 200


class Owned:
    """An optimizer of what this rank steps."""

    def __init__(self, net, skip):
        self.all = list(net.named_parameters())
        self.skip = skip
        rank, world = dist.get_rank(), dist.get_world_size()
        mine = [p for number, (_, p) in enumerate(self.all) if number % world == rank]
        self.inner = torch.optim.SGD(mine, lr=0.05, momentum=0.9)

    def step(self):
        for _, p in self.all:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        self.inner.step()
        for number, (name, p) in enumerate(self.all):
            if not (self.skip and name.startswith(self.skip)):
                dist.broadcast(p.data, number % dist.get_world_size())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.ModuleDict(
        {"embed": nn.Embedding(50, 24), "cell": nn.GRU(24, 24, batch_first=True), "out": nn.Linear(24, 8)}
    )
    optimizer = Owned(net, "cell.weight_hh" if sys.argv[1] == "fault" else "")
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        x = torch.randint(50, (16, 12), generator=generator)
        y = x.sum(1) % 8
        if step == 0 and rank == 0:
            print("begins", flush=True)
        hidden, _ = net["cell"](net["embed"](x))
        loss = nn.functional.cross_entropy(net["out"](hidden[:, -1]), y)
        net.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
