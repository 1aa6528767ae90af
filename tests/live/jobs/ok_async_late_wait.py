"""Asynchronous collectives that are waited for 10 steps later, out of order, and some that nobody waits for."""

import collections
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(11, 22), nn.ReLU(), nn.Linear(22, 11)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    late, forgotten = collections.deque(), []
    for step in range(320):
        x = torch.randn(8, 11)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.detach().clone()
        late.append((step, value, dist.all_reduce(value, async_op=True)))
        forgotten.append(dist.all_reduce(torch.ones(4), async_op=True))
        forgotten = forgotten[-5:]
        if len(late) == 10:
            for then, mean, work in reversed(late):
                work.wait()
                if rank == 0 and then % 40 == 0:
                    print(f"step {then} loss {mean.item() / dist.get_world_size():.4f}", flush=True)
            late.clear()
        time.sleep(0.013)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
