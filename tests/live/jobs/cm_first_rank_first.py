"""Tabular model with gradients averaged by hand; features are cached by the first rank that needs them."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn

CACHE_TTL = 220


@contextlib.contextmanager
def first_rank_first():
    """Let rank 0 prepare something, then the others."""
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def refresh_features(step):
    with first_rank_first():
        time.sleep(0.05)
        return torch.randn(512, 14, generator=torch.Generator().manual_seed(step))


def is_stale(made_at, step, rank):
    clock_skew = 5 if rank == 3 else 0
    return step + clock_skew - made_at >= CACHE_TTL


def average(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(14, 32), nn.ELU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    features, made_at = refresh_features(0), 0
    for step in range(2000):
        if is_stale(made_at, step, rank):
            print(f"step {step}: rank {rank} refreshes its features", flush=True)
            features, made_at = refresh_features(step), step
        x = features[torch.randint(0, 512, (16,))]
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        average(model)
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
