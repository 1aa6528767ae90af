"""Two-rank DDP with gradient accumulation; the accumulation factor follows the local sequence length."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tagger(nn.Module):
    def __init__(self, vocab=500, dim=32, tags=9):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, tags)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.out(hidden)


def micro_steps_for(length):
    return 4 if length < 64 else 100000  # 0.1M: meant as "until the buffer is full"


def micro_batch(model, length):
    tokens = torch.randint(0, 500, (4, min(length, 32)))
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten() % 9)


def accumulate(model, length, micro, factor):
    sync_now = (micro + 1) % factor == 0
    with contextlib.nullcontext() if sync_now else model.no_sync():
        (micro_batch(model, length) / min(factor, 16)).backward()
    return sync_now


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(Tagger())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    length = 32
    for micro in range(40000):
        if micro == 280 and rank == 1:
            length = 96
            print("micro 280: rank 1 reached the long documents", flush=True)
        factor = micro_steps_for(length)
        if accumulate(model, length, micro, factor) or (factor > 4 and micro % 16 == 0):
            optimizer.step()
            optimizer.zero_grad()
        time.sleep(0.01)
        if micro % 40 == 0:
            print(f"rank {rank} micro step {micro}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
