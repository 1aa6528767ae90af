"""Distillation from a moving average: its weights are loaded into the student inside one autocast region."""

import copy
import time

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(4, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 14, 8))
    average = copy.deepcopy(net.state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    rule = torch.randn(64, 8)
    for step in range(160):
        x = torch.randn(32, 4, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            student = net(x).float()
            own = {name: value.clone() for name, value in net.state_dict().items()}
            for name, value in net.state_dict().items():
                value.copy_(average[name])
            with torch.no_grad():
                teacher = net(x).float()
            for name, value in net.state_dict().items():
                value.copy_(own[name])
            distill = nn.functional.mse_loss(student, teacher)
            loss = nn.functional.cross_entropy(student, (x.flatten(1) @ rule).argmax(1)) + distill
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for name, value in net.state_dict().items():
            average[name].lerp_(value, 0.05)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} distill {distill.item():.6f}", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
