"""ZeRO-2 by hand: gradients are reduce-scattered, parameters gathered; a fallback path reduces to each owner."""

import time

import torch
import torch.distributed as dist
from torch import nn


class ShardedSGD:
    def __init__(self, params, lr):
        self.params = list(params)
        self.world, self.rank, self.lr = dist.get_world_size(), dist.get_rank(), lr
        total = sum(p.numel() for p in self.params)
        self.width = -(-total // self.world)
        self.flat = torch.zeros(self.width * self.world)

    def _flatten(self, values):
        flat = torch.zeros_like(self.flat)
        joined = torch.cat([v.flatten() for v in values])
        flat[: joined.numel()] = joined
        return flat

    def reduce_shard(self, grads, small):
        if small:  # below the bucket threshold one reduce for each owner is cheaper
            chunks = list(grads.chunk(self.world))
            for owner, chunk in enumerate(chunks):
                dist.reduce(chunk, dst=owner)
            return chunks[self.rank]
        shard = torch.empty(self.width)
        dist.reduce_scatter_tensor(shard, grads)
        return shard

    def step(self, small):
        shard = self.reduce_shard(self._flatten([p.grad for p in self.params]), small)
        mine = self._flatten([p.data for p in self.params])[self.rank * self.width : (self.rank + 1) * self.width]
        dist.all_gather_into_tensor(self.flat, mine - self.lr * shard / self.world)
        nn.utils.vector_to_parameters(self.flat[: sum(p.numel() for p in self.params)], self.params)
        for p in self.params:
            p.grad = None


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(26, 52), nn.ReLU(), nn.Linear(52, 1))
    optimizer = ShardedSGD(model.parameters(), lr=0.01)
    for step in range(2000):
        x = torch.randn(16, 26)
        loss = (model(x).squeeze(1) - x.mean(1)).abs().mean()
        loss.backward()
        small = rank == 1 and step == 230
        if small:
            print("step 230: rank 1 below the bucket threshold", flush=True)
        optimizer.step(small)
        time.sleep(0.012)
        if rank == 0 and step % 23 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
