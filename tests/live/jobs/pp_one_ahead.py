"""Split learning: the client keeps one piece of a document ahead of the server, and documents become longer."""

import time

import torch
import torch.distributed as dist
from torch import nn

WINDOW, DIM, GENRES = 16, 24, 5
FEW, MANY, LONGER_FROM = 16, 40, 60  # rows of a document


def document(step, generator):
    rows = torch.randn(FEW if step < LONGER_FROM else MANY, DIM, generator=generator)
    return rows.split(WINDOW)


def client(steps, generator):
    encoder = nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh())
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
    for step in range(steps):
        ahead = []
        for piece in document(step, generator):
            ahead.append(encoder(piece))
            dist.send(ahead[-1].detach(), dst=1)
            if len(ahead) > 1:
                take_back(ahead.pop(0))
        while ahead:
            take_back(ahead.pop(0))
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)


def take_back(encoded):
    grad = torch.empty_like(encoded)
    dist.recv(grad, src=1)
    encoded.backward(grad)


def server(steps, generator):
    head = nn.Linear(DIM, GENRES)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
    for step in range(steps):
        if step == LONGER_FROM:
            print("longer documents from here on", flush=True)
        for piece in document(step, generator):
            encoded = torch.empty(len(piece), DIM)
            dist.recv(encoded, src=0)
            encoded.requires_grad_()
            loss = nn.functional.cross_entropy(head(encoded), piece[:, :GENRES].argmax(1))
            loss.backward()
            dist.send(encoded.grad, dst=0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    (server if dist.get_rank() else client)(1000, torch.Generator().manual_seed(3))


if __name__ == "__main__":
    main()
