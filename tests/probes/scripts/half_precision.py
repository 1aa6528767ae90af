"""Four small trainings in one process, one after the other; prints after which steps each of them ended."""

import copy
import json

import torch
from torch import nn

ENDS: dict[str, int] = {}
STEPS = [0]


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
    STEPS[0] += 1


def swapped() -> None:
    """Other weights are loaded between two passes of one region; where the cache is emptied that is no fault."""
    for name, empties, steps in (("emptied", True, 6), ("swapped", False, 12)):
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
        other = copy.deepcopy(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(steps):
            x = torch.randn(4, 8)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                mine = net(x)
                own = [p.detach().clone() for p in net.parameters()]
                for p, q in zip(net.parameters(), other.parameters(), strict=True):
                    p.data.copy_(q)
                if empties:
                    torch.clear_autocast_cache()
                with torch.no_grad():
                    theirs = net(x)
                for p, kept in zip(net.parameters(), own, strict=True):
                    p.data.copy_(kept)
                if empties:
                    torch.clear_autocast_cache()
            step(optimizer, (mine.float() - theirs.float() - 1).pow(2).mean())
        ENDS[name] = STEPS[0]


def rounded() -> None:
    """A scale of ones and a matrix of small numbers, both in bfloat16."""
    net = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.0)
    for _ in range(40):
        x = torch.randn(16, 16)
        step(optimizer, nn.functional.cross_entropy(net(x.bfloat16()).float(), x[:, :4].argmax(1)))
    ENDS["rounded"] = STEPS[0]


class Scores(nn.Module):
    """A product of what two layers give, as attention has it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 64), nn.Linear(8, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.query(x) @ self.key(x).transpose(-1, -2)
        return scores.softmax(-1)


def overflowed() -> None:
    """Inputs that grow until the product does not fit any more."""
    net = Scores().half()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    for n in range(12):
        loss = net(torch.randn(2, 6, 8).half() * 2.0**n).float().pow(2).mean()
        step(optimizer, loss)
        if not torch.isfinite(loss):
            break
    ENDS["overflowed"] = STEPS[0]


def skipped() -> None:
    """A scaler whose losses are never finite."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(5):
        optimizer.zero_grad()
        scaler.scale(net(torch.ones(2, 4)).mean() / 0.0).backward()
        scaler.step(optimizer)
        scaler.update()
    ENDS["skipped"] = STEPS[0]


torch.manual_seed(0)
swapped()
rounded()
overflowed()
skipped()
print(json.dumps(ENDS))
