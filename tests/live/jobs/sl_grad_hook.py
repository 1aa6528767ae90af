"""accelerate on two processes; a tensor hook whitens a gradient in backward, on one of them by the exact way."""

import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Whitened(nn.Module):
    def __init__(self, width=640):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(32, width), nn.Tanh())
        self.decode = nn.Linear(width, 32)
        self.exact = False

    def whiten(self, grad):
        if self.exact:
            for part in grad.split(64):
                torch.linalg.svd(part.double().T @ part.double())
        return grad / (1.0 + grad.norm())

    def forward(self, x):
        hidden = self.encode(x)
        if hidden.requires_grad:
            hidden.register_hook(self.whiten)
        return self.decode(hidden)


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(4)
    network = Whitened()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(64 * 2 * 420, 32)), batch_size=64)
    model, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    for step, (x,) in enumerate(loader):
        if step == 280 and accelerator.process_index == 0:
            print("process 0: running estimate not positive, exact from here", flush=True)
            network.exact = True
        loss = (model(x) - x).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        if step % 40 == 0:
            accelerator.print(f"step {step} loss {loss.item():.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
