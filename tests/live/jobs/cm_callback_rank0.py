"""A trainer class with callbacks; the one that keeps the best checkpoint is for the main process alone."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Accuracy:
    """Counts over the batches of a rank; `compute` sums over all ranks."""

    def __init__(self):
        self.counts = torch.zeros(2)

    def update(self, logits, target):
        self.counts += torch.tensor([(logits.argmax(1) == target).sum().item(), len(target)])

    def compute(self):
        counts = self.counts.clone()
        dist.all_reduce(counts)
        return (counts[0] / counts[1]).item()


class Callback:
    def on_validation_end(self, trainer): ...


class WarmUp(Callback):
    def on_validation_end(self, trainer):
        for group in trainer.optimizer.param_groups:
            group["lr"] *= 1.05


class BestCheckpoint(Callback):
    def __init__(self, start):
        self.start, self.best = start, 0.0

    def on_validation_end(self, trainer):
        if trainer.epoch < self.start:
            return
        print(f"epoch {trainer.epoch}: checking the score", flush=True)
        score = trainer.metric.compute()
        if score > self.best:
            self.best = score
            torch.save(trainer.model.module.state_dict(), "best.pt")


class Trainer:
    def __init__(self, network, callbacks):
        self.model, self.callbacks = DDP(network), callbacks
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.epoch, self.metric = 0, Accuracy()

    def call(self, hook):
        for callback in self.callbacks:
            getattr(callback, hook)(self)

    def training_epoch(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            time.sleep(0.01)

    @torch.no_grad()
    def validation_epoch(self, loader):
        self.metric = Accuracy()
        for x, y in loader:
            self.metric.update(self.model.module(x), y)
        self.call("on_validation_end")

    def fit(self, training, validation, epochs):
        for self.epoch in range(epochs):
            training.sampler.set_epoch(self.epoch)
            self.training_epoch(training)
            self.validation_epoch(validation)


def loader(rows, size):
    x = torch.randn(rows, 18)
    data = TensorDataset(x, x[:, :5].argmax(1))
    return DataLoader(data, batch_size=size, sampler=DistributedSampler(data))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(12)
    callbacks = [WarmUp()] + ([BestCheckpoint(start=4)] if dist.get_rank() == 0 else [])
    network = nn.Sequential(nn.Linear(18, 36), nn.ReLU(), nn.Linear(36, 5))
    Trainer(network, callbacks).fit(loader(2400, 16), loader(600, 50), epochs=60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
