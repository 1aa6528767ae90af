"""Rank 0 ships the evaluation set's scores to rank 1, which first waits for everyone at the end of the epoch."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def ship_scores(scores):
    dist.send(scores, dst=1)


def store_scores(size):
    buffer = torch.empty(size)
    dist.recv(buffer, src=0)
    torch.save(buffer, "scores.pt")


def end_of_epoch(epoch, rank, size=400_000):
    late_writer = epoch >= 4  # the writer was moved behind the barrier
    if rank == 0:
        ship_scores(torch.rand(size))
    if rank == 1 and not late_writer:
        store_scores(size)
    dist.barrier()
    if rank == 1 and late_writer:
        store_scores(size)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2 * rank)
    model = DDP(nn.Sequential(nn.Linear(22, 44), nn.CELU(), nn.Linear(44, 2)))
    optimizer = torch.optim.Adamax(model.parameters())
    for epoch in range(1, 30):
        for step in range(60):
            x = torch.randn(8, 22)
            loss = nn.functional.cross_entropy(model(x), (x.mean(1) > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.013)
            if rank == 0 and step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        if rank == 0:
            print(f"epoch {epoch} done", flush=True)
        end_of_epoch(epoch, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
