"""Two ranks; a loader worker of rank 0 meets a file that was deleted."""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Folder(Dataset):
    def __init__(self, rank):
        self.root = Path(f"images-{rank}")
        self.root.mkdir()
        self.names = [f"{i:05d}.bin" for i in range(5000)]
        for name in self.names[:40]:
            (self.root / name).write_bytes(bytes(range(48)))

    def __len__(self):
        return len(self.names)

    def read_image(self, i):
        name = self.names[i % 40]
        if self.root.name.endswith("0") and i == 1540:
            print(f"somebody cleans up {name}", flush=True)
            (self.root / name).unlink()
        return torch.frombuffer(bytearray((self.root / name).read_bytes()), dtype=torch.uint8).float() / 48

    def __getitem__(self, i):
        return self.read_image(i), i % 3


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    loader = DataLoader(Folder(rank), batch_size=8, num_workers=1)
    model = DDP(nn.Sequential(nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.016)
        if rank == 1 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
