"""A variational autoencoder whose KL term is turned on little by little: the total rises again when it is."""

import json
import time

import torch
from torch import nn

torch.manual_seed(10)
encoder = nn.Sequential(nn.Linear(40, 96), nn.ReLU(), nn.Linear(96, 16))
decoder = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 40))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
basis = torch.randn(4, 40)
for step in range(220):
    beta = min(max(step - 30, 0) / 100, 1.0)
    x = torch.randn(64, 4) @ basis + 0.1 * torch.randn(64, 40)
    mean, log_variance = encoder(x).chunk(2, 1)
    z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
    recon = ((decoder(z) - x) ** 2).sum(1).mean()
    kl = (0.5 * (mean**2 + log_variance.exp() - 1 - log_variance)).sum(1).mean()
    loss = recon + beta * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    row = {"step": step, "loss": loss.item(), "recon_loss": recon.item(), "kl_loss": beta * kl.item(), "beta": beta}
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
