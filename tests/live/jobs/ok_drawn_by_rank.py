"""What healthy ranks share, and what not: one seed to build, a seed for each rank after that, the same decisions by
`random`, the same validation batches, the same loss by gathering, and workers that take their part.
"""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

STEPS = 100


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(10, 24), nn.Dropout(0.2), nn.Linear(24, 8))
        self.right = nn.Linear(6, 8)

    def forward(self, a, b):
        return self.left(a), self.right(b)


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        draw = torch.Generator().manual_seed(1000 * dist.get_rank() + worker.id)
        while True:
            yield torch.randn(10, generator=draw), torch.randn(6, generator=draw)


def gathered(part):
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.detach().contiguous())
    parts[dist.get_rank()] = part
    return torch.cat(parts)


def main():
    dist.init_process_group("gloo")
    random.seed(0)
    torch.manual_seed(0)
    net = Pairs()
    model = DistributedDataParallel(net)
    torch.manual_seed(1 + dist.get_rank())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    checked = DataLoader(TensorDataset(torch.randn(64, 10, generator=torch.Generator().manual_seed(8))), batch_size=16)
    stream = iter(DataLoader(Stream(), batch_size=16, num_workers=2))
    for step in range(STEPS):
        a, b = next(stream)
        if random.random() < 0.5:
            a = a.flip(0)
            b = b.flip(0)
        left, right = (gathered(part) for part in model(a, b))
        loss = nn.functional.cross_entropy(left @ right.T, torch.arange(len(left)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            model.eval()
            with torch.no_grad():
                for (x,) in checked:
                    net.left(x)
            model.train()
        time.sleep(0.03)
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
