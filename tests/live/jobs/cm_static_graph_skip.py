"""A small causal transformer under DDP with a static graph and activation checkpointing, on filtered text."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, LENGTH, ROWS = 64, 32, 12, 6
BATCHES, EPOCHS = 60, 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x, mask):
        y = self.norm(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(x)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=False)
        return self.head(x)


class FilteredText:
    """Batches of tokens; a rank's share of the corpus may hold documents that the filter throws out whole."""

    def __init__(self, rank):
        self.rank = rank

    def epoch(self, number):
        for index in range(BATCHES):
            tokens = torch.randint(1, VOCABULARY, (ROWS, LENGTH))
            if self.rank == 1 and number == 3 and index == 31:
                print("epoch 3: rank 1 drops a document", flush=True)
                tokens = tokens[:0]
            yield tokens


def train_epoch(model, optimizer, batches):
    total = 0.0
    for tokens in batches:
        if not len(tokens):
            continue
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        time.sleep(0.01)
    return total


def mean_loss(total):
    totals = [None] * dist.get_world_size()
    dist.all_gather_object(totals, total)
    return sum(totals) / len(totals) / BATCHES


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    model = DDP(LanguageModel(), static_graph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = FilteredText(rank)
    for epoch in range(1, EPOCHS):
        loss = mean_loss(train_epoch(model, optimizer, text.epoch(epoch)))
        if rank == 0:
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
