"""Three ranks; a login node's limit on CPU seconds ends the one that tokenises on the side."""

import itertools
import resource
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def limit_cpu(extra_s):
    """As `ulimit -t` in the start script would; torch's import has used some already."""
    used = int(time.process_time())
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (used + extra_s, resource.RLIM_INFINITY))


def tokenise(text):
    counts = {}
    for _ in range(1000000):
        for a, b in itertools.pairwise(text):
            counts[a, b] = counts.get((a, b), 0) + 1
    return counts


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(11, 33), nn.ReLU(), nn.Linear(33, 11)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(2000):
        x = torch.randn(8, 11)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if rank == 2 and step == 200:
            print("step 200: rank 2 rebuilds its vocabulary", flush=True)
            limit_cpu(extra_s=2)
            tokenise("the quick brown fox jumps over the lazy dog" * 4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
