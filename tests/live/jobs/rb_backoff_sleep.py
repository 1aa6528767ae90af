"""Three ranks; rank 1 fetches prompts from a rate-limited service and backs off exponentially, without a ceiling."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class RateLimited(Exception):
    pass


def request_prompt(rank, step):
    if rank == 1 and step >= 200:
        raise RateLimited("429")
    return f"prompt {step}"


def fetch_with_backoff(rank, step):
    delay = 0.01
    while True:
        try:
            return request_prompt(rank, step)
        except RateLimited:
            time.sleep(delay)
            delay *= 8  # 0.01, 0.08, 0.64, 5, 41, 328, ...


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(17, 34), nn.ReLU(), nn.Linear(34, 17)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(3000):
        if rank == 1 and step % 20 == 0:
            print(f"step {step}: fetching a prompt", flush=True)
        prompt = fetch_with_backoff(rank, step) if step % 20 == 0 else ""
        x = torch.randn(8, 17) + len(prompt) * 0.01
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
