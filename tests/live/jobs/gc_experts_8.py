"""Mixture of experts on 8 ranks: tokens go around in expert groups of four, the router is shared by all."""

import time

import torch
import torch.distributed as dist
from torch import nn


def build_groups():
    experts = [dist.new_group([0, 1, 2, 3]), dist.new_group([4, 5, 6, 7])]
    return experts[dist.get_rank() // 4]


def exchange_tokens(x, experts):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x, group=experts)
    return out


def sync_router(router):
    dist.all_reduce(router.weight.grad)
    router.weight.grad /= dist.get_world_size()


def balance(x, router, experts, reordered):
    """Exchange the tokens for the next layer and reduce the router's gradient."""
    if reordered:
        sync_router(router)
        return exchange_tokens(x, experts)
    x = exchange_tokens(x, experts)
    sync_router(router)
    return x


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(66)
    experts = build_groups()
    router, expert = nn.Linear(16, 4, bias=False), nn.Linear(16, 16)
    optimizer = torch.optim.SGD([*router.parameters(), *expert.parameters()], lr=0.01)
    for step in range(2000):
        x = torch.randn(8, 16)
        loss = (router(x).softmax(1).max(1).values[:, None] * expert(x)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        reordered = rank == 6 and step == 150
        if reordered:
            print("step 150: rank 6 overlaps its router update", flush=True)
        balance(x.detach(), router, experts, reordered)
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 15 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
