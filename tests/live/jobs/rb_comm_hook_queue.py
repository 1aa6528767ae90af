"""DDP with a communication hook of its own that also hands gradient statistics to a writer thread."""

import json
import queue
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class GradientDiary:
    """Keeps a line for each bucket and step; a thread writes, so that training need not wait for the disk."""

    def __init__(self, path, size=16):
        self.lines = queue.Queue(maxsize=size)
        self.path = Path(path)
        threading.Thread(target=self.write, daemon=True).start()

    def write(self):
        with self.path.open("w") as file:
            while True:
                line = self.lines.get()
                if line["norm"] > 1e6:
                    print(f"diary of rank {line['rank']} closed: norm {line['norm']:.1e}", flush=True)
                    return
                file.write(json.dumps(line) + "\n")

    def note(self, bucket):
        norm = bucket.buffer().norm().item()
        self.lines.put({"rank": dist.get_rank(), "bucket": bucket.index(), "norm": norm})


def average_and_note(diary, bucket):
    """Average the bucket over all ranks; its own part is noted first."""
    diary.note(bucket)
    tensor = bucket.buffer().div_(dist.get_world_size())
    work = dist.all_reduce(tensor, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def outlier(step, rank):
    """Rank 1 once meets a sensor that reports in other units."""
    return 1e9 if rank == 1 and step == 150 else 1.0


def train(model, optimizer, rank, steps):
    for step in range(steps):
        x = torch.randn(12, 40)
        y = x[:, :8].sin() * outlier(step, rank)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        time.sleep(0.01)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 80), nn.ReLU(), nn.Linear(80, 8)))
    model.register_comm_hook(GradientDiary(f"gradients-{rank}.jsonl"), average_and_note)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    train(model, optimizer, rank, 2000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
