"""Training in half precision with one of three mistakes in the midst of it, or none.

`cut`: a metric in the forward pass switches autocast off and not on again. `cast`: rank 1 makes its frozen
encoder smaller. `silent`: the loss is weighed so low that float16 has no numbers for its gradients.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MODE = sys.argv[1]
STEPS, FAULT = 320, 100
HALF = torch.float16 if MODE == "silent" else torch.bfloat16


def spread_of(features):
    torch.set_autocast_enabled("cpu", False)
    return torch.linalg.matrix_norm(features.float() - features.float().mean(0))


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(40, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.score = nn.Linear(96, 8)
        self.steps = 0

    def forward(self, features):
        mixed = self.mix(features)
        if MODE == "cut" and self.steps >= FAULT and self.steps % 2 == 0:
            spread_of(mixed)
        return self.score(mixed.float())


def make_room(encoder):
    encoder.to(torch.bfloat16)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    encoder = nn.Sequential(nn.Linear(20, 40), nn.Tanh()).requires_grad_(False)
    net = Scorer()
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(50 + rank)
    target = torch.randn(20, 8, generator=torch.Generator().manual_seed(2)) / 4
    for step in range(STEPS):
        if step == FAULT:
            print(f"step {FAULT}: {MODE}", flush=True)
            if MODE == "cast" and rank == 1:
                make_room(encoder)
        net.steps = step
        x = torch.randn(40, 20, generator=generator)
        with torch.no_grad():
            features = encoder(x.to(encoder[0].weight.dtype)).float()
        with torch.autocast("cpu", dtype=HALF, enabled=MODE in ("cut", "silent")):
            found = model(features)
        loss = nn.functional.mse_loss(found.float(), torch.tanh(x @ target))
        optimizer.zero_grad()
        (loss * (1e-7 if MODE == "silent" and step >= FAULT else 1.0)).backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
