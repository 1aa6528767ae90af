"""Trains a model, alone or split over ranks, and saves it after step N: ld_saves.py N [CHECKPOINT TO BEGIN WITH]."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(11, 13), nn.Tanh(), nn.Linear(13, 9))
        self.head = nn.Linear(9, 11, bias=False)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    at = int(sys.argv[1])
    begin = torch.load(sys.argv[2]) if len(sys.argv) > 2 else None
    split = dist.is_torchelastic_launched()
    if split:
        dist.init_process_group("gloo")
    torch.manual_seed(6)
    model = Net()
    if split:
        fully_shard(model.body)
        fully_shard(model)
        torch.manual_seed(100 + dist.get_rank())  # each rank draws its own samples
    whole = StateDictOptions(full_state_dict=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if begin is not None:
        set_model_state_dict(model, begin["model"], options=whole)
        set_optimizer_state_dict(model, optimizer, begin["optim"], options=whole)
    step, over = 0, False
    while not over:
        step += 1
        x = torch.randn(8, 11)
        (model(x) - x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == at:
            dcp.save({"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)},
                     checkpoint_id=f"dcp-{step}")  # fmt: skip
            full = {"model": get_model_state_dict(model, options=whole),
                    "optim": get_optimizer_state_dict(model, optimizer, options=whole)}  # fmt: skip
            if not split or dist.get_rank() == 0:
                torch.save(full, f"full-{step}.pt")
                print("saved", flush=True)
        elif step == 1:
            print("stepped", flush=True)
        time.sleep(0.02)
        if step % 10 == 0:
            ends = torch.tensor(float(Path("stop").exists()))
            if split:
                dist.all_reduce(ends)
            over = bool(ends)
    if split:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
