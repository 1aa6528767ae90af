"""All ranks evaluate every 100 steps, rank 0 saves every 150: both cost a second or so, as they should."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    total = torch.zeros(())
    for _ in range(batches):
        x = torch.randn(256, 64)
        total += nn.functional.cross_entropy(model.module(x), x[:, :10].argmax(1))
    dist.all_reduce(total)
    model.train()
    return total.item() / batches / dist.get_world_size()


def save(model, optimizer, step):
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
    torch.manual_seed(100 + rank)  # each rank draws its own samples
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(1, 701):
        x = torch.randn(32, 64)
        loss = nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if step % 100 == 0:
            score = evaluate(model, 300)
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f} validation {score:.4f}", flush=True)
        if step % 150 == 0 and rank == 0:
            save(model, optimizer, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
