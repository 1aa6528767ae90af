"""Three ranks; one leaves early and stays in an exit handler that waits for an upload to finish."""

import atexit
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def wait_for_upload():
    """The upload agent removes the marker file once all is uploaded."""
    while Path("uploading-1").exists():
        time.sleep(0.3)


def run_trial(rank):
    model = DDP(nn.Sequential(nn.Linear(21, 42), nn.ReLU(), nn.Linear(42, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(3000):
        x = torch.randn(8, 21)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if rank == 1 and step == 200:
            print("step 200: rank 1 pruned", flush=True)
            return


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    if rank == 1:
        Path("uploading-1").touch()
        atexit.register(wait_for_upload)
    run_trial(rank)


if __name__ == "__main__":
    main()
