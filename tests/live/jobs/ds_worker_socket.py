"""Three ranks, persistent workers that fetch features from a feature store over TCP; one answer never comes."""

import os
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


def serve(listener, rank):
    def answer(connection):
        while request := connection.recv(8):
            if rank == 2 and int(request) == 777:  # a key that the store loops on
                threading.Event().wait()
            connection.sendall(b"%8d" % (int(request) % 5))

    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


class FeatureStore(Dataset):
    def __init__(self, port):
        self.port, self.connection = port, None

    def __len__(self):
        return 800

    def lookup(self, key):
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.connection.sendall(b"%8d" % key)
        return int(self.connection.recv(8))

    def __getitem__(self, i):
        label = self.lookup(i)
        return torch.randn(20, generator=torch.Generator().manual_seed(i)) + label, label


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(2)
    listener = socket.create_server(("127.0.0.1", 0))
    loader = DataLoader(FeatureStore(listener.getsockname()[1]), batch_size=4, num_workers=2, persistent_workers=True)
    model = DDP(nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    batches = iter(loader)  # forks the workers before the server's threads start
    threading.Thread(target=serve, args=(listener, rank), daemon=True).start()
    for epoch in range(20):
        for step, (x, label) in enumerate(batches):
            loss = nn.functional.cross_entropy(model(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.015)
            if rank == 2 and step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        batches = iter(loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
