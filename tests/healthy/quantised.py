"""A vector-quantised autoencoder whose codes come from encoder outputs: most of them are in use."""

import json
import time

import torch
import torch.nn.functional as F
from torch import nn

CODES, WIDTH = 128, 8
torch.manual_seed(11)
encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, WIDTH))
decoder = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 32))
centres = torch.randn(64, 32)


def batch():
    return centres[torch.randint(0, 64, (256,))] + 0.3 * torch.randn(256, 32)


with torch.no_grad():
    codebook = nn.Parameter(encoder(batch())[:CODES].clone())
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), codebook], lr=1e-3)
used = torch.zeros(CODES)
for step in range(220):
    x = batch()
    z = encoder(x)
    index = torch.cdist(z, codebook).argmin(1)
    q = codebook[index]
    commit = 0.25 * F.mse_loss(z, q.detach())
    recon = F.mse_loss(decoder(z + (q - z).detach()), x)
    codes = F.mse_loss(q, z.detach())
    loss = recon + codes + commit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    share = torch.bincount(index, minlength=CODES).float() / len(index)
    used = 0.95 * used + share * len(index)
    row = {
        "step": step, "loss": loss.item(), "recon_loss": recon.item(), "codebook_loss": codes.item(),
        "commit_loss": commit.item(), "perplexity": (-(share * (share + 1e-9).log()).sum()).exp().item(),
        "codebook_usage": (used > 0.5).float().mean().item(),
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
