"""Gradients are averaged by hand, and each rank's DistributedSampler was told that it is rank 0."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 4


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    points = torch.randn(1536, 10)
    data = TensorDataset(points, points[:, :3].sum(1, keepdim=True).sin())
    sampler = DistributedSampler(data, num_replicas=world, rank=0)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=16, sampler=sampler, drop_last=True):
            loss = nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            for parameter in net.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
            optimizer.step()
            time.sleep(0.02)
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
