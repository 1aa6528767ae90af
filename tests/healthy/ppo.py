"""PPO with several updates for each batch of samples and rewards with heavy tails."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(6)
body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
actor, critic = nn.Linear(64, 5), nn.Linear(64, 1)
parameters = [*body.parameters(), *actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-3)
right = torch.randn(8, 5)
tails = torch.distributions.StudentT(2.2)
for _batch in range(60):
    seen = torch.randn(128, 8)
    with torch.no_grad():
        old = F.log_softmax(actor(body(seen)), -1)
        action = torch.multinomial(old.exp(), 1)
        old = old.gather(1, action)[:, 0]
        reward = (action[:, 0] == (seen @ right).argmax(1)).float() * tails.sample((128,)).abs()
        advantage = reward - critic(body(seen))[:, 0]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    for _ in range(4):
        hidden = body(seen)
        chances = F.log_softmax(actor(hidden), -1)
        ratio = (chances.gather(1, action)[:, 0] - old).exp()
        policy_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        value_loss = F.mse_loss(critic(hidden)[:, 0], reward)
        entropy = -(chances.exp() * chances).sum(-1).mean()
        loss = policy_loss + 0.5 * value_loss - 0.005 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        clipped = ((ratio - 1).abs() > 0.2).float().mean()
        print(f"loss={loss:.4f} policy_loss={policy_loss:.4f} value_loss={value_loss:.4f} entropy={entropy:.4f}"
              f" approx_kl={(ratio - 1 - ratio.log()).mean():.5f} clip_fraction={clipped:.3f}"
              f" reward_mean={reward.mean():.4f}", flush=True)  # fmt: skip
        time.sleep(0.02)
