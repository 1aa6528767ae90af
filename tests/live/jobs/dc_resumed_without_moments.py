"""After a pause the model is loaded from the run's own checkpoint, the optimizer and its schedule are not."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PAUSE, STEPS = 40, 90


def build():
    torch.manual_seed(4)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return model, optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=30)


def main():
    dist.init_process_group("gloo")
    model, optimizer, warmup = build()
    draw = torch.Generator().manual_seed(dist.get_rank())
    for step in range(STEPS):
        if step == PAUSE:
            if dist.get_rank() == 0:
                state = {"net": model.module.state_dict(), "adam": optimizer.state_dict(), "lr": warmup.state_dict()}
                torch.save(state, "run.pt")
            dist.barrier()
            model, optimizer, warmup = build()
            model.module.load_state_dict(torch.load("run.pt")["net"])
        x = torch.randn(24, 12, generator=draw)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warmup.step()
        time.sleep(0.03)
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
