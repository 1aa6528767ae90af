"""One small model under each way of training it on several ranks: FRAMEWORK [FAULT], healthy without a fault."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

FRAMEWORK = sys.argv[1]
FAULT = sys.argv[2] if sys.argv[2:] else ""
STEPS, AT = 150, 45
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(64, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.out = nn.Linear(width, 64)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def wrapped(model):
    if FRAMEWORK in ("ddp", "zero1", "accumulate"):
        return DistributedDataParallel(model)
    if FRAMEWORK in ("fsdp1", "fsdp1_orig"):
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=FRAMEWORK == "fsdp1_orig")
    if FRAMEWORK in ("fsdp2", "hsdp"):
        mesh = init_device_mesh("cpu", (2, WORLD // 2), mesh_dim_names=("r", "s")) if FRAMEWORK == "hsdp" else None
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if FRAMEWORK == "tp":
        mesh = init_device_mesh("cpu", (WORLD,))
        for block in model.blocks:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def optimizer_of(model):
    rate = 3e-3 * (2 if FAULT == "lr" and RANK == 1 else 1)
    decay = 0.1 if FAULT == "decay" and RANK == 1 else 0.01
    if FRAMEWORK == "zero1":
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=rate, weight_decay=decay)
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, foreach=FRAMEWORK != "tp")


def exchange(model, step):
    """The script's own data parallelism."""
    for number, (_, parameter) in enumerate(model.named_parameters()):
        if FAULT == "left_out" and number == 3:
            continue
        reduced = parameter.grad.clone()
        dist.all_reduce(reduced)
        reduced /= WORLD
        if FAULT == "lost" and RANK == WORLD - 1 and step >= AT and (step + number) % 16 == 0:
            reduced.zero_()
        parameter.grad.copy_(reduced)


def average(model):
    with torch.no_grad():
        for parameter in model.parameters():
            dist.all_reduce(parameter)
            parameter /= WORLD


def clip(model):
    if FAULT == "local_clip" and FRAMEWORK == "fsdp2":
        parts = [p.grad.to_local() for p in model.parameters()]
        norm = torch.stack([part.square().sum() for part in parts]).sum().sqrt()
        for part in parts:
            part.mul_(min(1.0, 0.05 / (norm.item() + 1e-6)))
    elif FRAMEWORK.startswith("fsdp1") and FAULT != "local_clip":
        model.clip_grad_norm_(0.05)
    elif FRAMEWORK == "tp":  # by hand: the rest of the model is whole on each rank
        whole = [p.grad for p in model.parameters() if type(p) is nn.Parameter]
        for gradient in whole:
            gradient.mul_(0.5 - 0.1 * RANK * (FAULT == "clip"))
    else:
        nn.utils.clip_grad_norm_(model.parameters(), 0.05 if FRAMEWORK.startswith("fsdp") else 1.0)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = wrapped(Tagger())
    optimizer = optimizer_of(model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    draws = torch.Generator().manual_seed(7 if FRAMEWORK == "tp" else 100 + RANK)
    for step in range(1, STEPS + 1):
        if FAULT == "hooks" and step == AT:
            model.double().float()
        for micro in range(3 if FRAMEWORK == "accumulate" else 1):
            tokens = torch.randint(0, 64, (8, 12), generator=draws)
            used = model.module if FAULT == "bypass" else model
            if FRAMEWORK == "accumulate" and (micro < 2 or FAULT == "no_sync"):
                with model.no_sync():
                    F.cross_entropy(used(tokens).flatten(0, 1), (3 * tokens.flatten() + 1) % 64).backward()
            else:
                F.cross_entropy(used(tokens).flatten(0, 1), (3 * tokens.flatten() + 1) % 64).backward()
        if FRAMEWORK == "manual":
            exchange(model, step)
        clip(model)
        if not (FAULT == "skip" and RANK == 1 and step == AT):
            optimizer.step()
        if FAULT == "twice" and RANK == 1 and step == AT:
            optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if FAULT == "schedule" and RANK == 1 and step % 2:
            schedule.step()
        if FRAMEWORK == "local_sgd" and step % 4 == 0:
            average(model)
        time.sleep(0.05)
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
