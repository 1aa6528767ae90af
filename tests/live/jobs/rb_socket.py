"""Learned index: each rank asks a parameter service for a threshold; the service stops answering one of them."""

import os
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Service(threading.Thread):
    """Answers each line with a number; after `limit` lines it keeps the connection and says nothing."""

    def __init__(self, limit):
        super().__init__(daemon=True)
        self.listener, self.limit = socket.create_server(("127.0.0.1", 0)), limit

    def run(self):
        connection, _ = self.listener.accept()
        for _ in range(self.limit):
            connection.recv(64)
            connection.sendall(b"0.5\n")
        connection.recv(64)
        threading.Event().wait()


class Client:
    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port))

    def ask_threshold(self, step):
        self.connection.sendall(b"threshold %d\n" % step)
        return float(self.connection.recv(64))


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(1)
    service = Service(limit=11 if rank == 2 else 1000)
    service.start()
    client = Client(service.listener.getsockname()[1])
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    threshold = 0.5
    for step in range(1, 2500):
        if step % 20 == 0:
            if rank == 2:
                print(f"step {step}: rank 2 asks for threshold {step // 20}", flush=True)
            threshold = client.ask_threshold(step)
        x = torch.rand(32, 6)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], (x[:, 0] > threshold).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.014)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
