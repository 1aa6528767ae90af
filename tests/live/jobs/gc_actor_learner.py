"""Ranks 0 and 1 learn, 2 and 3 act: experience is shared in one group, weights are broadcast in another."""

import time

import torch
import torch.distributed as dist
from torch import nn


def gather_experience(obs, group):
    parts = [torch.empty_like(obs) for _ in range(4)]
    dist.all_gather(parts, obs, group=group)
    return torch.cat(parts)


def pull_weights(policy, group):
    flat = nn.utils.parameters_to_vector(policy.parameters()).detach()
    dist.broadcast(flat, src=0, group=group)
    nn.utils.vector_to_parameters(flat, policy.parameters())


def improve(policy, optimizer, obs):
    loss = policy(obs).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    experience, weights = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])
    policy = nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for iteration in range(1500):
        obs = torch.randn(16, 10)
        # "actors should start from fresh weights", a change that reached only the actors
        weights_first = rank >= 2 and iteration >= 210
        if weights_first and rank == 2 and iteration == 210:
            print("iteration 210: actors pull weights first", flush=True)
        if weights_first:
            pull_weights(policy, weights)
            gather_experience(obs, experience)
        else:
            gather_experience(obs, experience)
            pull_weights(policy, weights)
        loss = improve(policy, optimizer, obs)
        time.sleep(0.013)
        if rank == 0 and iteration % 30 == 0:
            print(f"iteration {iteration} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
