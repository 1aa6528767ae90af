"""A library's timer signals its own process: one rank is interrupted in a long tally, the other waits for it."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


def tally(words):
    counts = {}
    while True:
        for word in words:
            counts[word] = counts.get(word, 0) + 1


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(200):
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if step == 60 and dist.get_rank() == 0:
            print("tallying", flush=True)
            timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            tally(["a", "b", "c"])
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
