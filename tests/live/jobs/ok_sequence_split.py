"""Each rank reads the same batch and takes its part of every sequence; the loss is the whole batch's on all of them."""

import time

import torch
import torch.distributed as dist
from torch import nn

STEPS = 100


class Gathered(torch.autograd.Function):
    """All parts of the sequence, of which the gradient of one's own comes back."""

    @staticmethod
    def forward(ctx, part):
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(dist.get_world_size(), 1)[dist.get_rank()].contiguous()


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 16)
        self.out = nn.Linear(16, 40)

    def forward(self, tokens):
        part = tokens.chunk(dist.get_world_size(), 1)[dist.get_rank()]
        return self.out(Gathered.apply(self.table(part)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    reader = Reader()
    optimizer = torch.optim.Adam(reader.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(6)
    for _ in range(STEPS):
        tokens = torch.randint(0, 40, (8, 12), generator=draw)
        loss = nn.functional.cross_entropy(reader(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(reader.table.weight.grad)
        optimizer.step()
        time.sleep(0.03)
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
