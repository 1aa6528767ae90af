"""Four ranks stream records over TCP through an IterableDataset with two workers; one stream goes silent."""

import os
import socket
import struct
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def stream(listener, records):
    def feed(connection):
        for n in range(records):
            connection.sendall(struct.pack("16f", *[(n * k) % 11 / 11 for k in range(16)]))
        threading.Event().wait()

    while True:
        threading.Thread(target=feed, args=(listener.accept()[0],), daemon=True).start()


class RecordStream(IterableDataset):
    def __init__(self, port):
        self.port = port

    def read_record(self, connection):
        data = b""
        while len(data) < 64:
            data += connection.recv(64 - len(data))
        return torch.tensor(struct.unpack("16f", data))

    def __iter__(self):
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            while True:
                yield self.read_record(connection)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    listener = socket.create_server(("127.0.0.1", 0))
    loader = iter(DataLoader(RecordStream(listener.getsockname()[1]), batch_size=8, num_workers=2))
    threading.Thread(target=stream, args=(listener, 960 if rank == 3 else 10**8), daemon=True).start()
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, x in enumerate(loader):
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 3 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
