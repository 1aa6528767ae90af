"""A small tagger on two ranks; from step 90 on one rank computes something for which the operation is not defined."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CLASSES, IGNORED = 6, -100


class Entropy(nn.Module):
    """Adds the entropy of its input's shares as one more feature."""

    def __init__(self):
        super().__init__()
        self.hard = False

    def forward(self, x):
        shares = x.softmax(-1)
        if self.hard:
            shares = nn.functional.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype) * x.new_tensor(1.0) + shares * 0
        return x - (shares * shares.log()).sum(-1, keepdim=True)


def spread(x):
    return x.std(0).mean()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 16)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), Entropy())
        self.out = nn.Linear(32, CLASSES)

    def forward(self, tokens):
        return self.out(self.body(self.words(tokens)))


def token_loss(scores, labels):
    return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def batch(step, rank, mode):
    generator = torch.Generator().manual_seed(2 * step + rank)
    tokens = torch.randint(40, (8, 5), generator=generator)
    labels = tokens % CLASSES
    if mode == "labels" and rank == 1 and step >= 90:
        labels = torch.full_like(labels, IGNORED)
    if mode == "spread" and rank == 0 and step >= 90:
        tokens, labels = tokens[:1], labels[:1]
    return tokens, labels


def main():
    mode = sys.argv[1]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    tagger = Tagger()
    model = DDP(tagger)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1, 400):
        if step == 90:
            print(f"step 90: {mode}", flush=True)
        tagger.body[2].hard = mode == "entropy" and rank == 1 and step >= 90
        tokens, labels = batch(step, rank, mode)
        scores = model(tokens)
        loss = token_loss(scores, labels)
        if mode == "spread":
            loss = loss + 0.01 * spread(scores)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
