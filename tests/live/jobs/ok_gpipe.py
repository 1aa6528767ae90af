"""Three stages under torch's GPipe schedule; the last one validates from time to time, and the others wait."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

WIDTH, ROWS, MICROBATCHES = 32, 32, 4


def stage_module(rank, world):
    layers = [nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)]
    if rank == world - 1:
        layers.append(nn.Linear(WIDTH, WIDTH))
    return nn.Sequential(*layers)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(ROWS, WIDTH, generator=generator)
    return x, x.roll(1, 1)


def run_step(schedule, rank, world, step):
    """One pass of all micro-batches; the losses are known to the last stage alone."""
    x, target = batch(step)
    if rank == 0:
        schedule.step(x)
        return None
    if rank == world - 1:
        losses = []
        schedule.step(target=target, losses=losses)
        return torch.stack(losses).mean()
    schedule.step()
    return None


@torch.no_grad()
def probe_head(module, seconds=3.0):
    """How the last stage's part does on its own on held-out activations."""
    until, seen = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        module(torch.randn(256, WIDTH))
        seen += 256
    return seen


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(40 + rank)
    module = stage_module(rank, world)
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    for step in range(1, 401):
        optimizer.zero_grad()
        loss = run_step(schedule, rank, world, step)
        optimizer.step()
        time.sleep(0.01)
        if loss is not None and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if loss is not None and step % 150 == 0:
            print(f"step {step} probed on {probe_head(module)} rows", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
