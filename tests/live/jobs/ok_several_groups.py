"""World, pairs and halves used in turn, by different ranks at different times, and a pause in one group only."""

import time

import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    odd_even = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    model = nn.Sequential(nn.Linear(17, 34), nn.ReLU(), nn.Linear(34, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 301):
        loss = model(torch.randn(8, 17)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=pairs[rank // 2])
        if step % 3 == 0:
            box = loss.detach().reshape(1)
            dist.broadcast(box, src=rank % 2, group=odd_even[rank % 2])
        if step == 150 and rank == 2:
            time.sleep(4)  # its pair and then its column wait; the others go on to the next world barrier
        if step % 10 == 0:
            dist.barrier()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
