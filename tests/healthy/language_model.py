"""A small transformer on a language with a pattern: warm-up, cosine to 0, clipping, weight decay by group."""

import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

STEPS, WARMUP, PEAK, VOCAB, WIDTH, LENGTH = 200, 30, 2e-3, 64, 48, 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 96, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.block(self.tokens(ids) + self.places[: ids.shape[1]], src_mask=mask, is_causal=True))


def rate(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


torch.manual_seed(1)
model = Model()
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() <= 1]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.95))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
for step in range(STEPS):
    first = torch.randint(0, VOCAB, (16, 1))
    ids = (first + 3 * torch.arange(LENGTH + 1)) % VOCAB
    ids = torch.where(torch.rand(ids.shape) < 0.1, torch.randint(0, VOCAB, ids.shape), ids)
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    print(json.dumps({"step": step, "loss": loss.item(), "grad_norm": norm.item()}), flush=True)
    time.sleep(0.02)
