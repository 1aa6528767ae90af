"""Four ranks in pairs: a pair agrees on its negatives through a group that gives up quickly, all train one model."""

import datetime
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DIM, ROWS = 28, 12


def pair_group(rank):
    """The group of this rank and its neighbour; all ranks make all groups."""
    groups = [dist.new_group([i, i + 1], timeout=datetime.timedelta(seconds=6)) for i in (0, 2)]
    return groups[rank // 2]


class NegativeIndex:
    """Hard negatives, sorted outside by a tool that is started anew at each rebuild."""

    def __init__(self, rank):
        self.rank, self.rows = rank, torch.randn(64, DIM)

    def sort_command(self, step):
        if self.rank == 3 and step == 150:
            print("step 150: rank 3 rebuilds from the remote index", flush=True)
            return [sys.executable, "-c", "import socket; s = socket.create_server(('127.0.0.1', 0)); s.accept()"]
        return ["sort", "/dev/null"]

    def rebuild(self, step, embeddings):
        subprocess.run(self.sort_command(step), check=True, stdin=subprocess.DEVNULL)
        self.rows = torch.cat([embeddings.detach(), self.rows])[:64]


def agree_on_margin(embeddings, index, group):
    margin = (embeddings.detach() @ index.rows.T).max().reshape(1)
    dist.all_reduce(margin, op=dist.ReduceOp.MAX, group=group)
    return margin


def contrastive_loss(embeddings, positives, index, margin):
    pull = (embeddings - positives).square().sum(1)
    push = (embeddings @ index.rows.T - 0.1 * margin).relu().mean(1)
    return (pull + push).mean()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = pair_group(rank)
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(DIM, 56), nn.ReLU(), nn.Linear(56, DIM)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    index = NegativeIndex(rank)
    for step in range(1000):
        x = torch.randn(ROWS, DIM)
        embeddings = nn.functional.normalize(model(x), dim=1)
        if step % 30 == 0:
            index.rebuild(step, embeddings)
        margin = agree_on_margin(embeddings, index, group)
        loss = contrastive_loss(embeddings, nn.functional.normalize(x, dim=1), index, margin)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        if rank == 0 and step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
