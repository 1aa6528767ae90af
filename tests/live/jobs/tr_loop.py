"""A two-headed regressor whose training loop has one of the mistakes that loops have, or none."""

import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MODE = sys.argv[1]
STEPS, FAULT = 360, 90


class Chooser(nn.Module):
    """Weighs the inputs by a soft choice among them, which may be made ever harder."""

    def __init__(self, width=24):
        super().__init__()
        self.keys = nn.Linear(width, 48)
        self.choice = nn.Linear(48, width)
        self.value = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))
        self.depth = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 200))

    def forward(self, x, sharp=1.0):
        weights = torch.softmax(self.choice(torch.tanh(self.keys(x))) * sharp, -1)
        return self.value(x + 6 * weights * x), self.depth(x)


def draw(generator, target, count=48):
    x = torch.randn(count, 24, generator=generator)
    wanted = x.gather(1, x[:, :8].argmax(1, keepdim=True)) + (x @ target)[:, :1] / 5
    return x, wanted, torch.tanh(x @ target) / 3


def forward(model, x, sharp):
    if MODE != "thread" or model.steps < FAULT:
        return model(x, sharp)
    made = []
    helper = threading.Thread(target=lambda: made.append(model(x, sharp)))
    helper.start()
    helper.join()
    return made[0]


def outer_round(model, anchors, outer):
    """The mean of the ranks' changes is the gradient of the anchors."""
    with torch.no_grad():
        for anchor, weight in zip(anchors, model.parameters(), strict=True):
            change = anchor - weight
            dist.all_reduce(change)
            anchor.grad = change / dist.get_world_size()
        outer.step()
        for anchor, weight in zip(anchors, model.parameters(), strict=True):
            weight.copy_(anchor)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    net = Chooser()
    model = net if MODE == "outer" else DDP(net)
    model.steps = 0
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.03)
    anchors = [weight.detach().clone() for weight in net.parameters()]
    outer = torch.optim.SGD(anchors, lr=0.7, momentum=0.5)
    generator = torch.Generator().manual_seed(20 + rank)
    target = torch.randn(24, 200, generator=torch.Generator().manual_seed(3)) / 5
    half = {"thread": torch.bfloat16, "flushed": torch.float16}.get(MODE)
    for step in range(STEPS):
        if step == FAULT:
            print(f"step {FAULT}: {MODE}", flush=True)
        model.steps = step
        x, wanted, depths = draw(generator, target)
        with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None):
            found, depth = forward(model, x, 1.13**step if MODE == "sharpen" else 1.0)
        loss = nn.functional.mse_loss(found.float(), wanted)
        loss = loss + (1e-5 if MODE == "flushed" else 20.0) * nn.functional.mse_loss(depth.float(), depths)
        if not (MODE == "window" and step >= FAULT and step % 3):
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if MODE == "outer" and step % 15 == 14:
            outer_round(net, anchors, outer)
        if MODE == "plateau" and step >= FAULT and step % 20 == 0:
            plateau.step(loss.item())
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
