"""Four ranks; rank 0 renders a preview with an external tool, which asks a question on its standard input."""

import subprocess
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# Like a video tool that asks before it overwrites a file.
TOOL = 'if [ -e "$1" ]; then echo "overwrite $1? "; read answer; fi; echo frame > "$1"'


def render_preview(path):
    tool = subprocess.Popen(["sh", "-c", TOOL, "render", path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    return tool.wait()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(19)
    model = DDP(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, 2000):
        x = torch.rand(4, 1, 16, 16)
        loss = (model(x + 0.1 * torch.randn_like(x)) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.013)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if rank == 0 and step % 110 == 0:
            name = "preview.txt" if step > 110 else "first.txt"
            if step == 330:
                print("step 330: rendering again", flush=True)
            render_preview(name)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
