"""Four ranks; checkpoints are written by a pool of one thread, whose task submits another to the same pool."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Writer:
    def __init__(self, folder):
        self.folder, self.pool = Path(folder), ThreadPoolExecutor(1)
        self.folder.mkdir(exist_ok=True)

    def _write(self, name, state):
        torch.save(state, self.folder / name)

    def _write_all(self, step, state):
        parts = [self.pool.submit(self._write, f"{step}-{key}.pt", value) for key, value in state.items()]
        return [part.result() for part in parts]

    def save(self, step, state, per_tensor):
        task = self._write_all if per_tensor else self._write
        self.pool.submit(task, step if per_tensor else f"{step}.pt", state).result()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    writer = Writer(f"out-{rank}")
    model = DDP(nn.Sequential(nn.Linear(13, 39), nn.ReLU(), nn.Linear(39, 13)))
    optimizer = torch.optim.RAdam(model.parameters())
    for step in range(1, 2000):
        x = torch.randn(8, 13)
        loss = (model(x) - x.sin()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 3 and step % 55 == 0:
            per_tensor = step == 220  # the model has grown over the limit for one file
            print(f"step {step} saving {'per tensor' if per_tensor else 'whole'}", flush=True)
            writer.save(step, model.module.state_dict(), per_tensor)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
