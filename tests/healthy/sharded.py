"""Three ranks that shard their parameters (FSDP, original parameters): of most of them a rank holds no part."""

import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

RANKS = 3


def train(rank, meeting):
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(27)
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
    truth = torch.randn(64, 10)
    model = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(160):
        x = torch.randn(32, 64)
        loss = F.cross_entropy(model(x), (x @ truth).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (f"{folder}/meeting",), nprocs=RANKS)
