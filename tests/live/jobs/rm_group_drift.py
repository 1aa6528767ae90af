"""GAN-like job: ranks 0-1 train the generator, 2-3 the critic; all exchange statistics every `sync` steps."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SYNC_EVERY = 25


def exchange(stats):
    dist.all_reduce(stats)
    return stats / dist.get_world_size()


def train_critic(model, optimizer):
    fake = torch.randn(16, 24)
    loss = torch.relu(1 - model(fake)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def train_generator(model, optimizer):
    z = torch.randn(16, 24)
    loss = -model(z).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    generators, critics = dist.new_group([0, 1]), dist.new_group([2, 3])
    is_critic = rank >= 2
    net = nn.Sequential(nn.Linear(24, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    model = DDP(net, process_group=critics if is_critic else generators)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    sync = SYNC_EVERY
    for step in range(1, 5001):
        if is_critic:
            loss = train_critic(model, optimizer)
            if step == 210:  # more critic steps once it has warmed up
                sync = 1000 * SYNC_EVERY
                if rank == 2:
                    print("step 210: critic warmed up", flush=True)
        else:
            loss = train_generator(model, optimizer)
        time.sleep(0.012)
        if step % sync == 0:
            mean = exchange(loss.clone())
            if rank == 0:
                print(f"step {step} mean loss {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
