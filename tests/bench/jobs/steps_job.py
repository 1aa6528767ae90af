"""A DDP training of a few million parameters; at its end it keeps what the probes have written about its steps."""

import argparse
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=16)
    return parser.parse_args()


def main(args: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    width = args.width
    model = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 256))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    x = torch.randn(args.batch, 256)
    ends = []
    began = time.monotonic()
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = (wrapped(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)  # as for a log
        ends.append(time.monotonic_ns())
    seconds = time.monotonic() - began
    keep(parameters, seconds, ends)
    dist.barrier()
    dist.destroy_process_group()


def keep(parameters: int, seconds: float, ends: list[int]) -> None:
    """Copy the blocks, and say what this rank's box shows, before both go with the job."""
    rank, folder = dist.get_rank(), Path(os.environ["DIAGD_DIR"])
    shutil.copy(folder / f"{os.getpid()}.bench", f"rank{rank}.bench")
    from diagd.probes.box import layout
    from diagd.probes.box.layout import Live, Op
    from diagd.probes.box.reader import BoxReader

    reader = BoxReader(next(folder.glob(f"{os.getpid()}-*.box")))
    last = next((r for r in reversed(reader.history()) if r.op == Op.ALLREDUCE), None)
    facts = {
        "parameters": parameters,
        "seconds": seconds,
        "ends": ends,
        "steps": reader.live(Live.STEP),
        "operations": reader.live(Live.OPERATIONS),
        "errors": reader.live(Live.PROBE_ERRORS),
        "off": reader.live(Live.PROBES_OFF),
        "overhead_s": reader.live(Live.OVERHEAD_NS) / 1e9,
        "site": reader.string(last.site) if last else "",
        "dims": list(last.dims) if last else None,
        "numel": last.numel if last else -1,
        "notes": (reader.text(layout.IDENTITY) or {}).get("notes", []),
        "python": sys.version.split()[0],
    }
    Path(f"rank{rank}.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main(arguments())
