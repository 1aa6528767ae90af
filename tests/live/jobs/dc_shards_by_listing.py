"""Each rank keeps the momentum of its third of the weights, and writes it; after a pause the files come reversed."""

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

PAUSE, STEPS = 60, 150


class Third:
    """One rank's part of all weights, as one vector, with an optimizer of its own."""

    def __init__(self, model):
        self.weights = list(model.parameters())
        flat = torch.cat([w.detach().view(-1) for w in self.weights])
        self.length = -(-len(flat) // dist.get_world_size())
        self.pad = self.length * dist.get_world_size() - len(flat)
        begin = dist.get_rank() * self.length
        self.mine = nn.Parameter(nn.functional.pad(flat, (0, self.pad))[begin : begin + self.length].clone())
        self.optimizer = torch.optim.SGD([self.mine], lr=0.02, momentum=0.9)

    def step(self):
        gradient = nn.functional.pad(torch.cat([w.grad.view(-1) for w in self.weights]), (0, self.pad))
        dist.all_reduce(gradient)
        begin = dist.get_rank() * self.length
        self.mine.grad = gradient[begin : begin + self.length] / dist.get_world_size()
        self.optimizer.step()
        parts = [torch.empty_like(self.mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.mine.detach())
        flat = torch.cat(parts)
        for weight in self.weights:
            count = weight.numel()
            weight.data.copy_(flat[:count].view_as(weight))
            weight.grad, flat = None, flat[count:]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 40), nn.Tanh(), nn.Linear(40, 5))
    third = Third(model)
    truth = torch.randn(16, 5, generator=torch.Generator().manual_seed(8))
    draw = torch.Generator().manual_seed(30 + rank)
    for step in range(STEPS):
        if step == PAUSE:
            torch.save(third.optimizer.state_dict(), f"momentum-{9 - rank}.pt")
            dist.barrier()
            third = Third(model)
            third.optimizer.load_state_dict(torch.load(sorted(Path().glob("momentum-*.pt"))[rank]))
        x = torch.randn(40, 16, generator=draw)
        loss = nn.functional.cross_entropy(model(x), (x @ truth).argmax(1))
        loss.backward()
        third.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
