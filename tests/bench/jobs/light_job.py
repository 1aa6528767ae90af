"""One rank whose steps are mostly idle: what the probes add to the CPU time of its thread shows, to a few microseconds.

What it computes in a step, and a large product between two of them, empties the caches as a training does.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, PERIOD_S = 256, 0.02


def main(steps: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 256))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    x, other = torch.randn(16, 256), torch.randn(400, 400)
    took = []
    began = time.monotonic()
    for number in range(steps):
        before = time.thread_time_ns()
        optimizer.zero_grad()
        loss = (wrapped(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        took.append([time.monotonic() - began, (time.thread_time_ns() - before) / 1000])
        other @ other
        time.sleep(max(began + (number + 1) * PERIOD_S - time.monotonic(), 0))
    shutil.copy(Path(os.environ["DIAGD_DIR"]) / f"{os.getpid()}.bench", "light.bench")
    Path("light.json").write_text(json.dumps(took), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
