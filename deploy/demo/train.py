"""An ordinary DDP training with an ordinary bug: each rank decides for itself when its loss is low enough to stop."""

# ruff: noqa: INP001, T201 - a script as users write them: it prints, and is no package

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 400


def batch_of(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(32, 64, generator=generator)
    # Rank 1 got the easy shard of the data.
    noise = torch.randn(32, 1, generator=generator) * (0.05 if rank == 1 else 1.0)
    return x, x.mean(dim=1, keepdim=True) + noise


def good_enough(losses: list[float]) -> bool:
    return len(losses) >= 40 and sum(losses[-10:]) / 10 < 0.1


def train() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses: list[float] = []
    for step in range(STEPS):
        x, y = batch_of(rank, step)
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if rank == 0 and step % 10 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}", flush=True)
        if good_enough(losses):  # the bug: the other ranks know nothing of it, and go on
            break
    finish(rank)


def finish(rank: int) -> None:
    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
