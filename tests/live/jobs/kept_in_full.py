"""Weights in half precision, and in the optimizer what makes small steps count; the job is taken up again halfway."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, AGAIN = 140, 60


class Exact(torch.optim.Optimizer):
    """Momentum, on a copy of the weights in float32."""

    def __init__(self, weights, whole):
        super().__init__(weights, {"lr": 2e-3})
        self.whole = whole

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["exact"] = weight.float()
                    state["pace"] = torch.zeros_like(state["exact"])
                state["pace"].mul_(0.9).add_(weight.grad)
                state["exact"].sub_(group["lr"] * state["pace"])
                weight.copy_(state["exact"])

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        if self.whole:
            weights = [weight for group in self.param_groups for weight in group["params"]]
            for weight, saved in zip(weights, state_dict["state"].values(), strict=True):
                self.state[weight] = dict(saved)


def main(fault):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 2)).bfloat16())
    optimizer = Exact(model.parameters(), not fault)
    gen = torch.Generator().manual_seed(70 + rank)
    for step in range(1, STEPS + 1):
        if step == AGAIN:
            torch.save(optimizer.state_dict(), f"optimizer{rank}.pt")
            optimizer = Exact(model.parameters(), not fault)
            optimizer.load_state_dict(torch.load(f"optimizer{rank}.pt"))
            print(f"rank {rank} goes on", flush=True)
        x = torch.randn(32, 10, generator=gen)
        loss = (model(x.bfloat16()).float() - x[:, :2].sin()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] == "fault")
