# mypy: ignore-errors
"""A run that stops half way and goes on from what it wrote; argument: how the file is read."""

import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOW = sys.argv[1]


class Mixer(nn.Module):
    def __init__(self, width=32, blocks=4):
        super().__init__()
        self.inlet = nn.Linear(10, width)
        self.gates = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.outlet = nn.Linear(width, 3)

    def forward(self, x):
        hidden = self.inlet(x)
        for gate in self.gates:
            hidden = hidden + torch.tanh(gate(hidden))
        return self.outlet(hidden)


def put_back(mixer, kept):
    """By position, as tools without names do."""
    tensors = list(kept["weights"])
    if HOW == "reversed":
        tensors[2:-2] = [tensors[at + part] for at in range(len(tensors) - 4, 1, -2) for part in (0, 1)]
    with torch.no_grad():
        for parameter, tensor in zip(mixer.parameters(), tensors, strict=True):
            parameter.copy_(tensor)


def stretch(folder, first, last, noise):
    torch.manual_seed(3)
    mixer = Mixer()
    optimizer = torch.optim.Adam(mixer.parameters(), lr=2e-3)
    path = f"{folder}/run.pt"
    if first:
        kept = torch.load(path, weights_only=True)
        put_back(mixer, kept)
        optimizer.load_state_dict(kept["moments"])
    model = DistributedDataParallel(mixer)
    wanted = torch.randn(10, 3, generator=torch.Generator().manual_seed(1))
    for step in range(first, last):
        x = torch.randn(64, 10, generator=noise)
        loss = (model(x) - torch.sin(x @ wanted)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
    if dist.get_rank() == 0:
        weights = [parameter.detach().clone() for parameter in mixer.parameters()]
        torch.save({"weights": weights, "moments": optimizer.state_dict()}, path)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    folders = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folders)
    noise = torch.Generator().manual_seed(50 + dist.get_rank())
    stretch(folders[0], 0, 130, noise)
    if dist.get_rank() == 0:
        print("step 130: goes on", flush=True)
    stretch(folders[0], 130, 260, noise)
    dist.destroy_process_group()


main()
