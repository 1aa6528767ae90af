"""Two ranks; one scores its samples twice from some point on: the job loses about a quarter of its speed."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Scorer:
    def __init__(self):
        self.passes = 1

    def overlap(self, a, b):
        return len(set(a) & set(b)) / max(len(set(a) | set(b)), 1)

    def score(self, rows):
        values = torch.zeros(len(rows))
        for _ in range(self.passes):
            for i, row in enumerate(rows):
                values[i] = sum(self.overlap(row, other) for other in rows) / len(rows)
        return values


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    scorer = Scorer()
    model = DDP(nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(760):
        if step == 260 and rank == 0:
            print("rank 0 scores twice", flush=True)
            scorer.passes = 2
        tokens = torch.randint(0, 64, (56, 24))
        target = scorer.score(tokens.tolist())
        loss = (model(tokens / 64.0).squeeze(-1) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
