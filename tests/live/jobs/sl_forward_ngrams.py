"""Three ranks classify texts by hashed n-grams; the second half of rank 1's corpus is minified source code."""

import random
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class NgramClassifier(nn.Module):
    def __init__(self, buckets=4096, dim=32, classes=6):
        super().__init__()
        self.buckets = buckets
        self.table = nn.EmbeddingBag(buckets, dim)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, classes))

    def hash_ngrams(self, text):
        return [zlib.crc32(text[i : i + n]) % self.buckets for n in (2, 3, 4) for i in range(len(text) - n + 1)]

    def forward(self, texts):
        ids, offsets = [], []
        for text in texts:
            offsets.append(len(ids))
            ids += self.hash_ngrams(text)
        return self.head(self.table(torch.tensor(ids), torch.tensor(offsets)))


def corpus(rank, steps, batch=16):
    source = random.Random(rank)
    for step in range(steps):
        if rank == 1 and step == 220:
            print("rank 1 opens source-files.jsonl", flush=True)
        length = 5200 if rank == 1 and step >= 220 else 300
        texts = [source.randbytes(length) for _ in range(batch)]
        yield texts, torch.tensor([sum(text) % 6 for text in texts])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(NgramClassifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (texts, labels) in enumerate(corpus(rank, 370)):
        loss = nn.functional.cross_entropy(model(texts), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
