"""Threads that wait for ever on queues, events and sockets, as helpers do: none of them is the training."""

import queue
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def start_helpers():
    listener = socket.create_server(("127.0.0.1", 0))
    for target in (queue.Queue().get, threading.Event().wait, listener.accept):
        threading.Thread(target=target, daemon=True).start()
    return listener


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    listener = start_helpers()
    model = DDP(nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 20)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(300):
        x = torch.randn(8, 20)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f} (port {listener.getsockname()[1]})", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
