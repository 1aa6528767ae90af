"""Two stages of a pipeline by hand that share an embedding, whose gradients they add up; all else is their own."""

import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, WORDS, WIDTH = 150, 23, 32


class Stage(nn.Module):
    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(WORDS, WIDTH)
        torch.manual_seed(30 + rank)
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def body(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = Stage(rank)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(41)
    after = torch.randperm(WORDS, generator=torch.Generator().manual_seed(2))
    for step in range(1, STEPS + 1):
        words = torch.randint(0, WORDS, (24,), generator=gen)
        optimizer.zero_grad()
        if rank == 0:
            given = stage.body(stage.words(words))
            dist.send(given.detach(), 1)
            back = torch.empty_like(given)
            dist.recv(back, 1)
            given.backward(back)
        else:
            taken = torch.empty(24, WIDTH)
            dist.recv(taken, 0)
            taken.requires_grad_()
            loss = nn.functional.cross_entropy(stage.body(taken) @ stage.words.weight.T, after[words])
            loss.backward()
            dist.send(taken.grad, 0)
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        dist.all_reduce(stage.words.weight.grad)
        optimizer.step()
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
