"""Two ranks; rank 1 reads the temperature from a helper that writes to a pipe, until the helper goes quiet."""

import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Sensor:
    def __init__(self):
        self.out, self._in = os.pipe()
        threading.Thread(target=self._feed, daemon=True).start()

    def _feed(self):
        for reading in range(45):
            os.write(self._in, b"%4d" % (40 + reading % 9))
            time.sleep(0.05)
        print("sensor: driver reloaded", flush=True)
        threading.Event().wait()

    def temperature(self):
        return int(os.read(self.out, 4))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    model = DDP(nn.Sequential(nn.Linear(7, 21), nn.ReLU6(), nn.Linear(21, 7)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sensor = Sensor() if rank == 1 else None
    for step in range(3000):
        x = torch.randn(8, 7)
        loss = (model(x) - x.abs()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if sensor and step % 5 == 0:
            heat = sensor.temperature()
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.3f} at {heat} C", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
