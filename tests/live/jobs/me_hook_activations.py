# mypy: ignore-errors
"""Autoencoder over two ranks; a probe for dead units keeps what the encoder's layers put out."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Autoencoder(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 768), nn.GELU(), nn.Linear(768, 64))
        self.decoder = nn.Sequential(nn.Linear(64, 768), nn.GELU(), nn.Linear(768, width))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class UnitProbe:
    """The share of units that are silent, over all that was seen."""

    def __init__(self, layers):
        self.seen = {}
        for name, layer in layers:
            layer.register_forward_hook(self.hook(name))

    def hook(self, name):
        def note(module, inputs, output):
            self.seen.setdefault(name, []).append(output.detach().flatten(1))

        return note

    def silent(self, name):
        return float((self.seen[name][-1].abs() < 1e-3).float().mean())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = Autoencoder()
    probe = UnitProbe([(n, m) for n, m in model.encoder.named_modules() if isinstance(m, nn.GELU)])
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    source = torch.Generator().manual_seed(dist.get_rank())
    for step in range(260):
        x = torch.randn(512, 384, generator=source)
        loss = (wrapped(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} silent {probe.silent('1'):.3f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


main()
