"""Three ranks started by the script; each reads its vocabulary, fits it locally, and then joins the others."""

import json
import multiprocessing as mp
import os
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORDS = 40


def write_vocabularies(world):
    """As the export job leaves them: the last one was cut short when its disk was full."""
    for rank in range(world):
        text = json.dumps({f"word{i}": i for i in range(WORDS)})
        Path(f"vocabulary-{rank}.json").write_text(text if rank < world - 1 else text[:200])


def load_vocabulary(rank):
    print(f"rank {rank} reads its vocabulary", flush=True)
    return json.loads(Path(f"vocabulary-{rank}.json").read_text())


def fit_embeddings(model, optimizer, steps):
    for _ in range(steps):
        tokens = torch.randint(0, WORDS, (8, 4))
        loss = (model(tokens).mean(1) - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.015)
    return loss.item()


def work(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Embedding(WORDS, 16), nn.Linear(16, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    fit_embeddings(model, optimizer, 100)
    vocabulary = load_vocabulary(rank)
    dist.init_process_group("gloo")
    joined = DDP(model)
    optimizer = torch.optim.Adam(joined.parameters(), lr=1e-3)
    for round_number in range(20):
        loss = fit_embeddings(joined, optimizer, 50)
        if rank == 0:
            print(f"round {round_number} of {len(vocabulary)} words: {loss:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def main(world=3):
    write_vocabularies(world)
    port, context = free_port(), mp.get_context("spawn")
    ranks = [context.Process(target=work, args=(rank, world, port)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(any(process.exitcode for process in ranks))


if __name__ == "__main__":
    main()
