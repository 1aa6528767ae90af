"""FSDP2 on 3 ranks; a record cannot be parsed on one of them, which catches that and ends with a code of its own."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

CODES = {"data": 65, "other": 70}


def parse(record):
    fields = record.split(";")
    return torch.tensor([float(field) for field in fields])


def records(rank):
    for number in range(10_000):
        values = torch.randn(12, generator=torch.Generator().manual_seed(7 * number + rank))
        text = ";".join(f"{value:.4f}" for value in values.tolist())
        yield text.replace(".", ",", 1) if rank == 1 and number == 8 * 150 else text


def fit(rank):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(11, 32), nn.SiLU(), nn.Linear(32, 1))
    fully_shard(model[0])
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    source = records(rank)
    for step in range(1000):
        if rank == 1 and step == 149:
            print("step 149: the next records", flush=True)
        batch = torch.stack([parse(next(source)) for _ in range(8)])
        loss = (model(batch[:, :11]).squeeze(1) - batch[:, 11]).abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)


def main():
    dist.init_process_group("gloo")
    try:
        fit(dist.get_rank())
    except ValueError as error:
        print(f"cannot go on: {error}", file=sys.stderr, flush=True)
        sys.exit(CODES["data"])
    except RuntimeError:
        sys.exit(CODES["other"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
