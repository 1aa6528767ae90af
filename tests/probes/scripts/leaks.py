# mypy: ignore-errors
"""Trains and keeps something of each step, in one way after another; prints what was told of each."""

import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from diagd.probes import memory, suspicion
from diagd.probes.budget import BUDGET

STEPS = 60
told = {}


class Told:
    """Takes the facts in place of the signals."""

    @staticmethod
    def fact(name, text, step=None):
        if name == suspicion.HOLDER:
            told.update(json.loads(text) if text else {"path": ""})


suspicion.SIGNALS = Told()
memory.EVERY_NS = 0  # steps this short would not all be read
BUDGET.affords = lambda ns: True  # on a busy machine, five leaks in a few seconds could not all be looked at


class History:
    """Keeps what it is given."""

    def __init__(self):
        self.losses = []

    def add(self, loss):
        self.losses.append(loss)  # list


class Seen(Dataset):
    """Keeps its samples."""

    def __init__(self):
        self.samples = []

    def __len__(self):
        return 100000

    def __getitem__(self, place):
        sample = torch.randn(256, 256)
        self.samples.append(sample)  # dataset
        return sample


def train(keep, batches):
    """Some steps, and time for diagd's own thread after them."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    keep = keep(model)
    for _, batch in zip(range(STEPS), batches, strict=False):
        loss = model(batch.flatten(0, -2)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keep(batch)
    time.sleep(0.6)


def noise():
    while True:
        yield torch.randn(512, 256)


def in_a_list(model):
    history = History()
    return lambda batch: history.add(model(batch).pow(2).mean())


def in_a_sum(model):
    total = torch.zeros(())

    def add(batch):
        nonlocal total
        total = total + model(batch).pow(2).mean()  # sum

    return add


def by_hooks(model):
    outputs = {}

    def hook(module, inputs, output):
        outputs.setdefault("first", []).append(output.detach())  # hook

    model[0].register_forward_hook(hook)
    return lambda batch: None


def nowhere(model):
    return lambda batch: None


def main():
    found = {}
    for keep in (in_a_list, in_a_sum, by_hooks, nowhere):
        told.clear()
        train(keep, noise())
        found[keep.__name__] = dict(told)
    told.clear()
    train(nowhere, DataLoader(Seen(), batch_size=4))
    print(json.dumps({**found, "in_the_dataset": told}))


main()
