"""Tensor-parallel pairs exchange activations' statistics, then all ranks agree on overflow; one does it first."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class Layout:
    def __init__(self, mesh):
        self.tp = mesh["tp"].get_group()

    def share_statistics(self, stats):
        dist.all_reduce(stats, group=self.tp)
        return stats

    def share_overflow(self, loss):
        flag = (~torch.isfinite(loss)).float()
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)

    def synchronise(self, stats, loss, overflow_first):
        if overflow_first:
            overflow = self.share_overflow(loss)
            self.share_statistics(stats)
        else:
            self.share_statistics(stats)
            overflow = self.share_overflow(loss)
        return overflow


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
        careful = rank == 3 and step == 220
        if careful:
            print("step 220: rank 3 checks for overflow first", flush=True)
        if not layout.synchronise(h.detach().std(0), loss.detach(), careful):
            optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
