"""num_workers=0; the dataset takes decoded clips from a decoder thread's queue. The decoder meets a broken file."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, broken_at):
        self.decoded, self.broken_at = queue.Queue(maxsize=16), broken_at
        threading.Thread(target=self._decode_all, name="decoder", daemon=True).start()

    def _decode_all(self):
        for i in range(len(self)):
            if i == self.broken_at:
                print(f"decoder: clip {i} is truncated, resynchronising", flush=True)
                while True:
                    time.sleep(1)
            self.decoded.put(torch.randn(3, 4, 8, 8))

    def __len__(self):
        return 20000

    def __getitem__(self, i):
        return self.decoded.get(), i % 4


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    loader = DataLoader(Clips(broken_at=900 if rank == 1 else -1), batch_size=4)
    model = DDP(nn.Sequential(nn.Flatten(), nn.Linear(768, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step, (clip, label) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(clip), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
