"""Parameter server: rank 0 takes one gradient from each of 3 workers, in any order, then sends the weights back."""

import time

import torch
import torch.distributed as dist
from torch import nn


def collect(model, workers):
    total = torch.zeros(sum(p.numel() for p in model.parameters()))
    for _ in range(workers):
        buffer = torch.empty_like(total)
        dist.recv(buffer)
        total += buffer
    return total / workers


def publish(model):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    dist.broadcast(flat, src=0)
    nn.utils.vector_to_parameters(flat, model.parameters())


def compute_gradient(model, rows):
    x = torch.randn(rows, 14)
    loss = (model(x) - x.mean(1, keepdim=True)).pow(2).mean()
    grads = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([g.flatten() for g in grads])


def work(model, rank, step):
    rows = 0 if rank == 3 and step == 220 else 8
    if rows == 0:
        print(f"step {step}: rank {rank} has an empty shard", flush=True)
    else:
        dist.send(compute_gradient(model, rows), dst=0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(14, 28), nn.Sigmoid(), nn.Linear(28, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2000):
        if rank == 0:
            flat, offset = collect(model, dist.get_world_size() - 1), 0
            for p in model.parameters():
                p.grad = flat[offset : offset + p.numel()].view_as(p)
                offset += p.numel()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step} gradient {flat.norm().item():.4f}", flush=True)
        else:
            work(model, rank, step)
        publish(model)
        time.sleep(0.012)


if __name__ == "__main__":
    main()
