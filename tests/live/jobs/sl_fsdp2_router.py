"""FSDP2 on three ranks; a block assigns tokens to slots one by one, and rank 0's tokens begin to compete for few."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Routed(nn.Module):
    def __init__(self, width=48, slots=64):
        super().__init__()
        self.gate = nn.Linear(width, slots)
        self.mix = nn.Linear(width, width)
        self.crowded = False

    def assign(self, scores):
        """Greedy: each token takes the best slot that is left, and begins again if it was taken."""
        taken, order = set(), []
        for row in scores.argsort(-1, descending=True).tolist():
            for _ in range(6000 if self.crowded else 1):
                slot = next((s for s in row if s not in taken), row[0])
            taken.add(slot)
            order.append(slot)
        return torch.tensor(order)

    def forward(self, x):
        scores = self.gate(x)
        order = self.assign(scores.detach())
        weight = scores.softmax(-1).amax(-1, keepdim=True)
        return x + weight * self.mix(x) / (1.0 + order.unsqueeze(-1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    blocks = [nn.Sequential(nn.Linear(48, 48), nn.GELU()), Routed(), nn.Sequential(nn.Linear(48, 48), nn.GELU())]
    model = nn.Sequential(*blocks)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(370):
        if step == 200 and rank == 0:
            print("rank 0 enters the crowded part", flush=True)
            blocks[1].crowded = True
        x = torch.randn(40, 48)
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
