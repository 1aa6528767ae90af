"""Two ranks; rank 0's shards lie on storage that answers late: it asks again each second, and says so in its log."""

import logging
import pathlib
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("shards")


def open_shard(path, late_s):
    """The shard's bytes, once they are there."""
    began = time.monotonic()
    while True:
        if time.monotonic() - began > late_s:
            path.write_bytes(bytes(8))
        try:
            return path.read_bytes()
        except FileNotFoundError:
            log.warning("%s is not there yet, asking again", path.name)
            time.sleep(1.0)


def main():
    late_s = float(sys.argv[1])
    logging.basicConfig(level="INFO")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 24)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(400):
            if rank == 0 and step == 180:
                print("step 180: the next shard", flush=True)
                open_shard(pathlib.Path(folder) / "shard-7", late_s)
            x = torch.randn(16, 24, generator=generator)
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.015)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
