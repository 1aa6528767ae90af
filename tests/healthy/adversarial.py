"""A generator against a discriminator: two optimizers in turn, neither loss falls for long."""

import json
import time

import torch
import torch.nn.functional as F
from torch import nn


def network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2),
                         nn.Linear(64, outputs))  # fmt: skip


torch.manual_seed(4)
generator, discriminator = network(8, 2), network(2, 1)
for_generator = torch.optim.Adam(generator.parameters(), lr=4e-4, betas=(0.5, 0.9))
for_discriminator = torch.optim.Adam(discriminator.parameters(), lr=8e-4, betas=(0.5, 0.9))
for step in range(200):
    side = torch.randint(0, 2, (64, 1)).float() * 2 - 1
    real = torch.cat([side, side * 0.5], 1) + 0.2 * torch.randn(64, 2)
    fake = generator(torch.randn(64, 8))
    d_loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake.detach())).mean()
    for_discriminator.zero_grad()
    d_loss.backward()
    for_discriminator.step()
    g_loss = F.softplus(-discriminator(fake)).mean()
    for_generator.zero_grad()
    g_loss.backward()
    for_generator.step()
    row = {"iter": step, "d_loss": d_loss.item(), "g_loss": g_loss.item(), "diversity": fake.std(0).mean().item()}
    print(json.dumps(row), flush=True)
    time.sleep(0.02)
