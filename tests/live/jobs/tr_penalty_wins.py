"""Word vectors whose penalty is a sum over the whole table, where the loss is a mean over the batch."""

import json
import time
from pathlib import Path

import torch
from torch import nn

STEPS, WORDS, WIDTH = 220, 3000, 20


def main():
    torch.manual_seed(6)
    inner, outer = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
    for table in (inner, outer):
        nn.init.normal_(table.weight, std=0.15)
    optimizer = torch.optim.Adam([*inner.parameters(), *outer.parameters()], lr=5e-3)
    gen = torch.Generator().manual_seed(7)
    with Path("history.jsonl").open("w") as history:
        for step in range(1, STEPS + 1):
            words = torch.randint(0, WORDS, (256,), generator=gen)
            near, far = (words + 7) % WORDS, torch.randint(0, WORDS, (256,), generator=gen)
            score = (inner(words) * (outer(near) - outer(far))).sum(-1)
            pair_loss = nn.functional.softplus(-score).mean()
            l2_loss = 0.05 * (inner.weight.square().sum() + outer.weight.square().sum())
            loss = pair_loss + l2_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            told = {"step": step, "loss": loss.item(), "pair_loss": pair_loss.item(), "l2_loss": l2_loss.item()}
            history.write(json.dumps(told) + "\n")
            history.flush()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            time.sleep(0.02)


if __name__ == "__main__":
    main()
