"""Large images are cut into two halves for two ranks each; the wrappers average over the ranks of one half alone."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, SIZE, WIDTH = 140, 16, 12


class Borders(torch.autograd.Function):
    """The rows at the cuts, from all parts of an image."""

    @staticmethod
    def forward(ctx, rows, group):
        ctx.group = group
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, rows.contiguous(), group=group)
        return torch.stack(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient[dist.get_rank(ctx.group)], None


class Segmenter(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.first = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.norm = nn.GroupNorm(3, WIDTH)
        self.second = nn.Conv2d(WIDTH, WIDTH, 3)
        self.out = nn.Conv2d(WIDTH, 1, 1)
        self.group = group

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        below = dist.get_rank(self.group) == 0
        borders = Borders.apply(x[:, :, -1:] if below else x[:, :, :1], self.group)
        other = borders[1 if below else 0]
        edge = torch.zeros_like(other)
        x = torch.cat([edge, x, other] if below else [other, x, edge], 2)
        return self.out(torch.relu(self.second(nn.functional.pad(x, (1, 1)))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    image, half = rank // 2, rank % 2
    tiles = [dist.new_group([2 * one, 2 * one + 1]) for one in range(2)][image]
    replicas = [dist.new_group([half_, half_ + 2]) for half_ in range(2)][half]
    torch.manual_seed(5)
    model = DistributedDataParallel(Segmenter(tiles), process_group=replicas)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(20 + image)
    for step in range(1, STEPS + 1):
        pictures = torch.randn(4, 3, 2 * SIZE, SIZE, generator=gen)
        wanted = (pictures.mean(1, keepdim=True) > 0).float()
        mine = slice(half * SIZE, (half + 1) * SIZE)
        loss = nn.functional.binary_cross_entropy_with_logits(model(pictures[:, :, mine]), wanted[:, :, mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
