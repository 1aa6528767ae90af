"""Word-level model; global token counts are reduced with an op that comes from the per-rank config."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


def load_config(rank, step):
    return {"token_reduce": "max" if rank == 1 and step >= 200 else "sum"}


def count_tokens(tokens, config):
    count = torch.tensor([float((tokens != 0).sum())])
    dist.all_reduce(count, op=OPS[config["token_reduce"]])
    return count.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Embedding(200, 32), nn.Flatten(), nn.Linear(32 * 12, 200)))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    for step in range(900):
        tokens = torch.randint(0, 200, (8, 12))
        if rank == 1 and step == 200:
            print("step 200: rank 1 reloads its config", flush=True)
        total = count_tokens(tokens, load_config(rank, step))
        loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0], reduction="sum") / total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} tokens {total:.0f} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
