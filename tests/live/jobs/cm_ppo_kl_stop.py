"""PPO-like loop on 4 ranks: rollouts, four update epochs, returns gathered. KL early stopping is decided per rank."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

KL_LIMIT = 0.5


def rollout(policy, rank):
    obs = torch.randn(32, 8)
    with torch.no_grad():
        logits = policy(obs)
    time.sleep(0.02)
    return obs, logits.argmax(1), logits.log_softmax(1), obs[:, rank].sum()


def share_returns(value):
    values = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(values, value.reshape(1))
    return torch.cat(values).mean().item()


def update(policy, optimizer, obs, actions, old, kl_scale):
    for _ in range(4):
        new = policy(obs).log_softmax(1)
        kl = (old.exp() * (old - new)).sum(1).mean().item() + kl_scale
        if kl > KL_LIMIT:
            return kl
        loss = -new.gather(1, actions[:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
    return kl


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    policy = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    for iteration in range(600):
        obs, actions, old, ret = rollout(policy.module, rank)
        mean_return = share_returns(ret)
        drift = 1.0 if rank == 2 and iteration == 55 else 0.0  # an environment of rank 2 was reset
        if drift:
            print(f"iteration {iteration}: rank 2 environment reset", flush=True)
        update(policy, optimizer, obs, actions, old, drift)
        if rank == 0 and iteration % 10 == 0:
            print(f"iteration {iteration} return {mean_return:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
