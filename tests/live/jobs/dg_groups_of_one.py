"""DDP within each node, by a number of devices a node that is read wrong: every rank has a group of its own."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 130


def node_group(per_node):
    group, _ = dist.new_subgroups(group_size=per_node)
    return group


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    net = nn.Sequential(nn.Linear(20, 40), nn.LayerNorm(40), nn.ReLU(), nn.Linear(40, 6))
    model = DistributedDataParallel(net, process_group=node_group(int(os.environ.get("DEVICES_PER_NODE", "1"))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    gen = torch.Generator().manual_seed(rank)
    hits = torch.zeros(1)
    for step in range(STEPS):
        x = torch.randn(32, 20, generator=gen)
        y = x[:, :6].argmax(1)
        out = model(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(out, y).backward()
        optimizer.step()
        hits[0] = (out.argmax(1) == y).float().mean()
        dist.all_reduce(hits)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} accuracy {hits.item() / dist.get_world_size():.3f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
