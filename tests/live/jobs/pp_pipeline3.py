"""Three-stage pipeline by hand; the last stage leaves a batch out when its loss is not finite."""

import time

import torch
import torch.distributed as dist
from torch import nn

ROWS, DIM = 8, 20


class Stage:
    def __init__(self, rank, last):
        self.rank, self.last = rank, last
        self.net = nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh())
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def receive_activation(self):
        x = torch.empty(ROWS, DIM)
        dist.recv(x, src=self.rank - 1)
        return x.requires_grad_()

    def receive_gradient(self):
        grad = torch.empty(ROWS, DIM)
        dist.recv(grad, src=self.rank + 1)
        return grad

    def run_batch(self, step):
        x = self.receive_activation() if self.rank else torch.randn(ROWS, DIM)
        y = self.net(x)
        if self.last:
            loss = y.square().mean() * (float("nan") if step == 230 else 1.0)
            if not torch.isfinite(loss):
                print(f"step {step}: loss is not finite, batch left out", flush=True)
                return None
            loss.backward()
        else:
            dist.send(y.detach(), dst=self.rank + 1)
            loss = None
            y.backward(self.receive_gradient())
        if self.rank:
            dist.send(x.grad, dst=self.rank - 1)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    stage = Stage(rank, rank == world - 1)
    for step in range(1, 3000):
        loss = stage.run_batch(step)
        time.sleep(0.012)
        if loss is not None and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
