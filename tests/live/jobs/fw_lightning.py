"""Lightning's Trainer, which starts its ranks itself, with validation; and what may go wrong in it on rank 1."""

import sys
import time

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WRONG_AT = 60


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 48), nn.BatchNorm1d(48), nn.GELU(), nn.Linear(48, 1))

    def training_step(self, batch, number):
        x, y = batch
        time.sleep(0.02)
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, number):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Trouble(Callback):
    def __init__(self, mode):
        self.mode = mode

    def on_train_batch_start(self, trainer, module, batch, number):
        if self.mode == "healthy" or trainer.global_rank != 1 or trainer.global_step != WRONG_AT:
            return
        print(f"rank 1 at step {trainer.global_step}: {self.mode}", flush=True)
        match self.mode:
            case "sleeps":
                self.export_samples()
            case "gathers":
                self.log_predictions(module, batch[0])
            case "changed":
                with torch.no_grad():
                    module.net[0].weight[0, 0] += 0.5
            case "rate":
                trainer.optimizers[0].param_groups[0]["lr"] = 0.1
            case "nan":
                batch[0][3, 5] = float("nan")

    def export_samples(self):
        """A rank that has something of its own to do."""
        time.sleep(3600)

    def log_predictions(self, module, x):
        """A metric on one rank alone."""
        with torch.no_grad():
            module.all_gather(module.net(x))


def dataset(rows, seed):
    x = torch.randn(rows, 16, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x @ torch.linspace(-1, 1, 16)[:, None])


def main():
    lightning.seed_everything(3)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=4, gradient_clip_val=1.0, log_every_n_steps=5,
        enable_progress_bar=False, callbacks=[Trouble(sys.argv[1])],
    )  # fmt: skip
    training = DataLoader(dataset(640, 1), batch_size=8, shuffle=True)
    trainer.fit(Regression(), training, DataLoader(dataset(128, 2), batch_size=16))
    print("trained", flush=True)


if __name__ == "__main__":
    main()
