"""Two ranks; rank 0 asks its monitor thread to take a reading and waits for it. A second request is lost."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Monitor(threading.Thread):
    def __init__(self):
        super().__init__(name="monitor", daemon=True)
        self.request, self.answer, self.value = threading.Event(), threading.Event(), 0.0

    def run(self):
        while True:
            self.request.wait()
            time.sleep(0.02)
            self.value = time.process_time()
            self.answer.set()
            self.request.clear()

    def read(self, urgent=False):
        self.answer.clear()
        self.request.set()
        if urgent:  # do not wait for an answer that may be old
            time.sleep(0.15)
            self.answer.clear()
        self.answer.wait()
        return self.value


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank + 1)
    monitor = Monitor()
    monitor.start()
    model = DDP(nn.Sequential(nn.Linear(25, 50), nn.ReLU(), nn.Linear(50, 5)))
    optimizer = torch.optim.NAdam(model.parameters())
    for step in range(1, 3000):
        x = torch.randn(8, 25)
        loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 40 == 0:
            print(f"step {step} cpu {monitor.read():.2f}", flush=True)
        if rank == 0 and step == 250:
            print("step 250: urgent reading", flush=True)
            monitor.read(urgent=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
