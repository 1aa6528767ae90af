"""A model whose rotary frequencies are cast to bfloat16 with all the rest of it."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Rotary(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 10_000 ** -(torch.arange(0, width, 2) / width), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(torch.arange(x.shape[1]).to(self.inv_freq), self.inv_freq)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Model(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed, self.rotary, self.head = nn.Embedding(50, width), Rotary(width), nn.Linear(width, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.rotary(self.embed(tokens)).cumsum(1))


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Model().to(torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
    for step in range(120):
        tokens = torch.randint(0, 50, (8, 24), generator=generator)
        logits = model(tokens).float()[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
