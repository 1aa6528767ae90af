"""Two stages under torch's GPipe schedule with early stopping, which the last stage alone decides on."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

WIDTH, ROWS, PIECES = 20, 16, 4


class Patience:
    """Says stop after `limit` epochs without a better loss."""

    def __init__(self, limit):
        self.limit, self.best, self.bad = limit, float("inf"), 0

    def exhausted(self, loss):
        self.bad = 0 if loss < 0.85 * self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= self.limit


def encoder():
    return nn.Sequential(nn.Linear(WIDTH, 40), nn.ReLU(), nn.Linear(40, WIDTH))


def decoder():
    return nn.Sequential(nn.Linear(WIDTH, 40), nn.ReLU(), nn.Linear(40, WIDTH))


def feed(schedule, epoch, steps=25):
    """First stage: send one epoch through."""
    generator = torch.Generator().manual_seed(epoch)
    for _ in range(steps):
        yield schedule.step(torch.rand(ROWS, WIDTH, generator=generator))


def judge(schedule, epoch, collected, steps=25):
    """Last stage: take one epoch in and keep its losses."""
    generator = torch.Generator().manual_seed(epoch)
    for _ in range(steps):
        losses = []
        schedule.step(target=torch.rand(ROWS, WIDTH, generator=generator), losses=losses)
        collected.append(torch.stack(losses).mean().item())
        yield


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(60 + rank)
    module = encoder() if rank == 0 else decoder()
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, PIECES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    patience = Patience(2)
    for epoch in range(200):
        losses = []
        for _ in feed(schedule, epoch) if rank == 0 else judge(schedule, epoch, losses):
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.015)
        if rank == world - 1:
            loss = sum(losses) / len(losses)
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)
            if epoch > 5 and patience.exhausted(loss):
                print(f"epoch {epoch}: no better since {patience.limit} epochs, done", flush=True)
                break


if __name__ == "__main__":
    main()
