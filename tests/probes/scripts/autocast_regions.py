# mypy: ignore-errors
"""Trains with autocast regions of all shapes; prints of each whether the loss moved, and when old casts were found."""

import json
from contextlib import nullcontext

import torch
from torch import nn

from diagd.probes import autocast
from diagd.probes.box.layout import Live
from diagd.probes.state import STATE


def cast(**options):
    return torch.autocast("cpu", dtype=torch.bfloat16, **options)


def train(
    outer=nullcontext,
    inner=nullcontext,
    whole=nullcontext,
    after=lambda: None,
    between=lambda model: None,
    accumulate=1,
    backend=None,
):
    """`outer` around the loop, `whole` around each step, `inner` around each forward pass; `between` these passes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    forward = torch.compile(model, backend=backend) if backend else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    inputs = torch.randn(4, 8)
    losses = []
    with outer():
        for _ in range(8):
            with whole():
                for _ in range(accumulate):
                    with inner():
                        loss = forward(inputs).float().pow(2).mean()
                    loss.backward()
                    between(model)
                optimizer.step()
            optimizer.zero_grad()
            after()
            losses.append(loss.item())
    found = STATE.live[Live.STALE_CAST_STEP]
    STATE.live[Live.STALE_CAST_STEP] = 0
    looks = sum(autocast.REGION.looks.values())
    autocast.REGION.looks.clear()
    return {"moved": len(set(losses)) > 1, "found": found > 0, "looks": looks}


def shift(model):
    with torch.no_grad():
        model[0].weight.add_(0.1)


train()  # from the first step on it is a rank
print(json.dumps({
    "around the loop": train(outer=cast),
    "around the loop, and each forward pass": train(outer=cast, inner=cast),
    "around each forward pass": train(inner=cast),
    "around each step": train(whole=cast),
    "around the loop, cleared": train(outer=cast, after=torch.clear_autocast_cache),
    "around the loop, without a cache": train(outer=lambda: cast(cache_enabled=False)),
    "around the loop, off in the model": train(outer=cast, inner=lambda: cast(enabled=False)),
    "around accumulated passes": train(whole=cast, accumulate=4),
    "around passes of weights that move": train(whole=cast, accumulate=2, between=shift),
    "around each pass of weights that move": train(inner=cast, accumulate=2, between=shift),
    "around the loop, compiled with the casts": train(outer=cast, backend="aot_eager"),
    "none": train(),
}))  # fmt: skip
