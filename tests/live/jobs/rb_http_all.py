"""All ranks report to a tracking server over HTTP without a timeout; the server accepts and never answers."""

import socket
import threading
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tracker(threading.Thread):
    """A tracking server that hangs after `healthy` requests."""

    def __init__(self, healthy):
        super().__init__(daemon=True)
        self.listener, self.healthy = socket.create_server(("127.0.0.1", 0)), healthy
        self.kept = []

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            connection.recv(4096)
            self.healthy -= 1
            if self.healthy < 0:
                self.kept.append(connection)
                continue
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
            connection.close()


def post_metric(url, step, loss):
    with urllib.request.urlopen(f"{url}/log?step={step}&loss={loss}") as reply:
        return reply.read()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    tracker = Tracker(healthy=8)
    tracker.start()
    url = f"http://127.0.0.1:{tracker.listener.getsockname()[1]}"
    model = DDP(nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(1, 3000):
        x = torch.randn(8, 10)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
        if step % 30 == 0:
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)
            post_metric(url, step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
