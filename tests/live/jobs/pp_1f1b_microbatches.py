"""Three stages under torch's 1F1B schedule; from a later step on the batch is cut into twice as many pieces."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, ROWS = 24, 4


class Curriculum:
    """Micro-batches per step; the cache of rank 1 was written before the second phase was added."""

    def __init__(self, rank):
        self.phases = {1: 4} if rank == 1 else {1: 4, 100: 8}

    def pieces(self, step):
        return self.phases[max(start for start in self.phases if start <= step)]


class PipelineTrainer:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.curriculum = Curriculum(rank)
        self.module = nn.Sequential(nn.Linear(WIDTH, 48), nn.Tanh(), nn.Linear(48, WIDTH))
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.02)
        self.schedules = {n: self.make_schedule(n) for n in (4, 8)}

    def make_schedule(self, pieces):
        stage = PipelineStage(self.module, self.rank, self.world, torch.device("cpu"))
        return Schedule1F1B(stage, pieces, loss_fn=nn.functional.mse_loss)

    def forward_backward(self, step, pieces):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(ROWS * pieces, WIDTH, generator=generator)
        losses = []
        schedule = self.schedules[pieces]
        if self.rank == 0:
            schedule.step(x)
        elif self.rank == self.world - 1:
            schedule.step(target=x.flip(0), losses=losses)
        else:
            schedule.step()
        return torch.stack(losses).mean() if losses else torch.zeros(())

    def share_loss(self, loss):
        """The last stage's loss, for every stage's learning-rate plan."""
        loss = loss.detach().clone()
        dist.broadcast(loss, src=self.world - 1)
        return loss.item()

    def fit(self, steps):
        for pieces in self.schedules:  # the stages learn each other's shapes
            self.forward_backward(0, pieces)
        for step in range(1, steps + 1):
            if step == 100 and self.rank == 0:
                print("step 100: smaller pieces", flush=True)
            self.optimizer.zero_grad()
            loss = self.forward_backward(step, self.curriculum.pieces(step))
            self.optimizer.step()
            loss = self.share_loss(loss)
            time.sleep(0.01)
            if self.rank == 0 and step % 20 == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    PipelineTrainer(dist.get_rank(), dist.get_world_size()).fit(1500)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
