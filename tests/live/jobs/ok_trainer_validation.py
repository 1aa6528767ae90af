"""A trainer class with hooks; its validation set is sorted by length, so one rank's share takes much longer."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(self.lengths[index], 16, generator=generator)
        return x, x[:, 0].mean() > 0


class Trainer:
    """A loop with places for a subclass to do its own."""

    def __init__(self, network):
        self.model = DDP(network)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.epoch = 0

    def training_step(self, batch): ...

    def validation_step(self, batch): ...

    def on_validation_end(self, outputs): ...

    def fit(self, training, validation, epochs, every):
        for self.epoch in range(1, epochs + 1):
            for batch in training:
                self.optimizer.zero_grad()
                self.training_step(batch).backward()
                self.optimizer.step()
                time.sleep(0.01)
            if self.epoch % every == 0:
                self.model.eval()
                with torch.no_grad():
                    self.on_validation_end([self.validation_step(batch) for batch in validation])
                self.model.train()


class SequenceTrainer(Trainer):
    def training_step(self, batch):
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.model(x.mean(1))[:, 0], y.float())

    def validation_step(self, batch):
        """Every prefix is scored, as the model is used on streams."""
        x, y = batch
        scores = [self.model.module(x[:, :length].mean(1)) for length in range(1, x.shape[1] + 1)]
        return sum(((score[:, 0] > 0) == y).float().mean().item() for score in scores) / len(scores)

    def on_validation_end(self, outputs):
        mean = torch.tensor([sum(outputs), len(outputs)])
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"epoch {self.epoch} score {mean[0] / mean[1]:.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    training = DataLoader(Sequences([12] * 480), batch_size=8, shuffle=True)
    shares = torch.tensor([40] * 40 + [60] * 40 + [9000] * 40).chunk(world)
    validation = DataLoader(Sequences(shares[rank].tolist()), batch_size=1)
    SequenceTrainer(network).fit(training, validation, epochs=8, every=4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
