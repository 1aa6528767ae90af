"""Three ranks share halos with each neighbour through a group of two per edge of the ring."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def make_edges():
    return {pair: dist.new_group(list(pair)) for pair in ((0, 1), (1, 2), (0, 2))}


def share_edge(value, edge):
    dist.all_reduce(value, group=edge)
    return value / 2


def share_ordered(value, rank, edges):
    """Edges in one global order: never stuck."""
    for pair in sorted(edges):
        if rank in pair:
            value = share_edge(value, edges[pair])
    return value


def share_right_first(value, rank, edges):
    """Meant to be faster: everybody begins with its right neighbour."""
    right, left = sorted((rank, (rank + 1) % 3)), sorted((rank, (rank - 1) % 3))
    value = share_edge(value, edges[tuple(right)])
    return share_edge(value, edges[tuple(left)])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(33)
    edges = make_edges()
    model = DDP(nn.Sequential(nn.Linear(9, 27), nn.Softplus(), nn.Linear(27, 9)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    share = share_ordered
    for step in range(1, 2000):
        if step == 200:
            if rank == 0:
                print("step 200: switching to right-first exchange", flush=True)
            share = share_right_first
        halo = share(torch.randn(4, 9), rank, edges)
        loss = (model(halo) - halo).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
