"""Healthy: float16 with a scaler that begins too high, skips a dozen steps, grows now and then, and skips again."""

import time

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
    average = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28, growth_interval=10)
    rule = torch.randn(32, 8)
    for step in range(200):
        x = torch.randn(64, 32)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), (x @ rule).argmax(1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            for kept, parameter in zip(average, model.parameters(), strict=True):
                kept.lerp_(parameter, 0.01)
        if step % 50 == 49:  # an evaluation with the average, in full precision, each pass in a region of its own
            own = [parameter.detach().clone() for parameter in model.parameters()]
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                for parameter, kept in zip(model.parameters(), average, strict=True):
                    parameter.copy_(kept)
                value = nn.functional.cross_entropy(model(x), (x @ rule).argmax(1)).item()
                for parameter, kept in zip(model.parameters(), own, strict=True):
                    parameter.copy_(kept)
            print(f"evaluation {value:.4f}", flush=True)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():g}", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
