"""Split learning on two ranks: activations carry the step as their tag; the client restarted its counter."""

import time

import torch
import torch.distributed as dist
from torch import nn


def client_step(net, optimizer, tag):
    x = torch.randn(8, 12)
    h = net(x)
    dist.send(h.detach(), dst=1, tag=tag)
    grad = torch.empty_like(h)
    dist.recv(grad, src=1, tag=tag)
    optimizer.zero_grad()
    h.backward(grad)
    optimizer.step()


def server_step(net, optimizer, tag):
    h = torch.empty(8, 24)
    dist.recv(h, src=0, tag=tag)
    h.requires_grad_()
    loss = net(h).square().mean()
    optimizer.zero_grad()
    loss.backward()
    dist.send(h.grad, dst=0, tag=tag)
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Linear(12, 24) if rank == 0 else nn.Sequential(nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    counter = 0
    for step in range(3000):
        if rank == 0:
            if step == 250:
                print("step 250: client starts a new epoch", flush=True)
                counter = 0
            client_step(net, optimizer, counter)
        else:
            loss = server_step(net, optimizer, counter)
            if step % 25 == 0:
                print(f"step {step} loss {loss:.3f}", flush=True)
        counter += 1
        time.sleep(0.012)


if __name__ == "__main__":
    main()
