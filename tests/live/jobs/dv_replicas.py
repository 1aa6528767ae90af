"""Models under every kind of wrapper, in one job: those that must be equal are, or three are not.

A step as argument: after this one a weight of one replica is changed, and the other two are wrong from the start.

What differs between ranks by design is always there: an expert, an average that one rank keeps, each rank's statistics.
"""

import copy
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

CHANGED_AT = int(sys.argv[1]) if sys.argv[1:] else 0
FAULTY = bool(CHANGED_AT)
STEPS = 160


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 12)
        self.outer = nn.Linear(12, 12)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


class Teacher(Reader):
    pass


class Expert(Reader):
    pass


class Whole(Reader):
    pass


class Halved(Reader):
    pass


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(12)
        self.out = nn.Linear(12, 12)

    def forward(self, x):
        return self.out(self.norm(x))


class Statistics(nn.Module):
    """What each rank has seen."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(12))


def seeded(make, seed):
    torch.manual_seed(seed)
    return make()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    teacher = seeded(Teacher, 5 if FAULTY and rank == 2 else 4).requires_grad_(False)
    replica = DistributedDataParallel(seeded(Reader, 1))
    normed = DistributedDataParallel(seeded(Normed, 2), broadcast_buffers=not FAULTY)
    sharded = fully_shard(seeded(Halved, 3), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    flat = FullyShardedDataParallel(seeded(Whole, 6), device_id=torch.device("cpu"), use_orig_params=True)
    expert = seeded(Expert, 100 + rank)
    average = copy.deepcopy(replica.module).requires_grad_(False)
    statistics = Statistics()
    models = [replica, normed, sharded, flat, expert]
    optimizer = torch.optim.AdamW([p for model in models for p in model.parameters()], lr=1e-3, foreach=False)
    data = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        x = torch.randn(8, 12, generator=data)
        loss = sum((model(x) - teacher(x)).square().mean() for model in models)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            statistics.seen.lerp_(x.mean(0), 0.1)
            if rank == 0:
                for kept, new in zip(average.parameters(), replica.module.parameters(), strict=True):
                    kept.lerp_(new, 0.1)
            if FAULTY and rank == 1 and step + 1 == CHANGED_AT:
                replica.module.outer.weight[3, 4] *= 1.5
        time.sleep(0.02)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print("done", flush=True)


if __name__ == "__main__":
    main()
