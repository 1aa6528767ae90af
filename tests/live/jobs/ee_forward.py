"""Three ranks; one sees a token id outside the embedding."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Bigram(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.table, self.out = nn.Embedding(vocab, 24), nn.Linear(24, vocab)

    def forward(self, tokens):
        return self.out(self.embed(tokens))

    def embed(self, tokens):
        return self.table(tokens)


def batch(rank, step, vocab=128):
    tokens = torch.randint(0, vocab, (8, 16))
    if rank == 1 and step == 210:
        print("step 210: rank 1 reads shard 7", flush=True)
        tokens[3, 5] = vocab  # the special token was not added
    return tokens


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(Bigram(128))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(2000):
        tokens = batch(rank, step)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
