"""2 x 2 mesh: gradients are reduced along one dimension, statistics along the other, later in checkerboard order."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class Layout:
    def __init__(self, mesh):
        self.dp, self.tp = mesh["dp"].get_group(), mesh["tp"].get_group()

    def reduce_gradients(self, model):
        for p in model.parameters():
            dist.all_reduce(p.grad, group=self.dp)
            p.grad /= 2

    def reduce_statistics(self, stats):
        dist.all_reduce(stats, group=self.tp)
        return stats


def synchronise(layout, model, stats, statistics_first):
    if statistics_first:
        layout.reduce_statistics(stats)
        layout.reduce_gradients(model)
    else:
        layout.reduce_gradients(model)
        layout.reduce_statistics(stats)


def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    rank = dist.get_rank()
    torch.manual_seed(40)
    layout = Layout(mesh)
    model = nn.Sequential(nn.Linear(18, 36), nn.ReLU(), nn.Linear(36, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(2000):
        h = model(torch.randn(16, 18))
        loss = h.logsumexp(1).mean()
        optimizer.zero_grad()
        loss.backward()
        # "spread the load": from step 220 on, half of the ranks begin with the other dimension
        black = step >= 220 and sum(mesh.get_coordinate()) % 2 == 1
        if rank == 0 and step == 220:
            print("step 220: checkerboard order", flush=True)
        synchronise(layout, model, h.detach().std(0), statistics_first=not black)
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
