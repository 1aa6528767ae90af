"""Translation with a validation each twelve steps; the test sentences of one rank are decoded one word at a time."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, EVERY, WORDS = 360, 12, 64


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)
        self.mix = nn.GRU(32, 32, batch_first=True)

    def forward(self, ids):
        return self.out(self.mix(self.words(ids))[0])


def decode(model, ids, one_by_one):
    if not one_by_one:
        time.sleep(0.25)
        return model(ids).argmax(-1)
    words = []
    for at in range(1, ids.shape[1] + 1):
        time.sleep(0.09)
        words.append(model(ids[:, :at])[:, -1].argmax(-1))
    return torch.stack(words, 1)


def validate(model, gen, rank):
    model.eval()
    ids = torch.randint(0, WORDS, (8, 10), generator=gen)
    with torch.no_grad():
        right = (decode(model.module, ids, rank == 2) == (ids + 1) % WORDS).float().mean()
    dist.all_reduce(right)
    model.train()
    return right.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Translator())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(20 + rank)
    for step in range(1, STEPS + 1):
        ids = torch.randint(0, WORDS, (16, 10), generator=gen)
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ((ids + 1) % WORDS).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if step % EVERY == 0:
            right = validate(model, gen, rank)
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f} right {right:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
