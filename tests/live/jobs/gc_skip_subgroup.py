"""Four ranks; pairs on one node average batch-norm statistics before the world averages gradients."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LOSS_LIMIT = 50.0


def average_statistics(model, node_group):
    for name, buffer in model.named_buffers():
        if "running" in name:
            dist.all_reduce(buffer, group=node_group)
            buffer /= 2


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    nodes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 100, 10))
    model = DDP(net, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2000):
        x = torch.randn(8, 3, 12, 12)
        loss = nn.functional.cross_entropy(model(x), torch.randint(0, 10, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        value = loss.item() + (1000.0 if rank == 2 and step == 200 else 0.0)  # a corrupt batch
        if value > LOSS_LIMIT:
            print(f"step {step}: rank {rank} drops an outlier", flush=True)
            continue
        average_statistics(net, nodes[rank // 2])
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
