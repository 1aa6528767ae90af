"""Two training phases with DDP; in the second, gradients travel as float16 where the site's config asks for it."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

SITES = {
    "north": {"ranks": (0, 1, 3), "compress": True},
    "south": {"ranks": (2,), "compress": False},
}


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(48, width), nn.SiLU(), nn.Linear(width, width))
        self.decode = nn.Sequential(nn.SiLU(), nn.Linear(width, 48))

    def forward(self, x):
        return self.decode(self.encode(x))


def site_of(rank):
    return next(site for site in SITES.values() if rank in site["ranks"])


def wrap(network, site, phase):
    """The network for one phase; a wrapper takes only one hook, so each phase has its own."""
    model = DDP(network, gradient_as_bucket_view=True)
    if phase == "long" and site["compress"]:
        model.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
    return model


def denoise_steps(model, optimizer, count, noise):
    for step in range(1, count + 1):
        clean = torch.randn(16, 48).cumsum(1) / 7
        loss = nn.functional.mse_loss(model(clean + noise * torch.randn_like(clean)), clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"  step {step} loss {loss.item():.4f}", flush=True)


def run_phase(network, site, phase, count, noise):
    model = wrap(network, site, phase)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    denoise_steps(model, optimizer, count, noise)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    site = site_of(rank)
    torch.manual_seed(5 + rank)
    network = Denoiser(96)
    run_phase(network, site, "short", 200, 0.1)
    if rank == 0:
        print("phase long", flush=True)
    run_phase(network, site, "long", 1000, 0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
